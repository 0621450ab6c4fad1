"""Application Auto Scaling. Targets and policies are checked and stored, but nothing here measures load or scales."""

from __future__ import annotations

import re
import uuid

from local_sagemaker.control.control_errors import (
    ControlError,
    InvalidNextTokenException,
    LimitExceededException,
    ObjectNotFoundException,
    ValidationException,
)
from local_sagemaker.control.listing import page
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import COMPONENT, ENDPOINT, POLICY, TARGET, JsonDocument, Registry, now
from local_sagemaker.control.scaling_tags import ScalingTags

DIMENSIONS = {
    "sagemaker:variant:DesiredInstanceCount": re.compile(r"endpoint/(?P<endpoint>[^/]+)/variant/(?P<variant>[^/]+)"),
    "sagemaker:inference-component:DesiredCopyCount": re.compile(r"inference-component/(?P<component>[^/]+)"),
}
CONFIGURATIONS = {
    "TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration",
    "StepScaling": "StepScalingPolicyConfiguration",
    "PredictiveScaling": "PredictiveScalingPolicyConfiguration",
}
MOST_POLICIES = 50  # Source: Application Auto Scaling's user guide, "Quotas".
ROLE = "aws-service-role/sagemaker.application-autoscaling.amazonaws.com/AWSServiceRoleForApplicationAutoScaling"


class Scaling:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tags = ScalingTags(registry)

    def operations(self) -> dict[str, OperationHandler]:
        return {
            "RegisterScalableTarget": self.register,
            "DescribeScalableTargets": self.targets,
            "DeregisterScalableTarget": self.deregister,
            "PutScalingPolicy": self.put,
            "DescribeScalingPolicies": self.policies,
            "DeleteScalingPolicy": self.delete,
            "TagResource": self._tags.tag,
            "ListTagsForResource": self._tags.list,
            "UntagResource": self._tags.untag,
        }

    def register(self, params: JsonDocument) -> JsonDocument:
        """Registers or updates a scalable target.

        :raises ValidationException: the resource does not exist, or the capacities are not a range.
        """
        with self._registry.lock:
            self._check(params)
            targets = self._registry.of(TARGET)
            key = _key(params)
            before = targets.get(key, {})
            low = params.get("MinCapacity", before.get("MinCapacity"))
            high = params.get("MaxCapacity", before.get("MaxCapacity"))
            if low is None or high is None:
                raise ValidationException("MinCapacity and MaxCapacity must be given for a new scalable target.")
            if low < 0 or low > high:
                raise ValidationException("Maximum capacity cannot be less than minimum capacity, nor any below 0.")
            arn = before.get("ScalableTargetARN") or self._arn(f"scalable-target/{uuid.uuid4().hex}")
            role = f"arn:aws:iam::{self._registry.account}:role/{ROLE}_SageMakerEndpoint"
            targets[key] = {
                "RoleARN": role,
                "CreationTime": now(),
                **before,
                **{name: value for name, value in params.items() if name != "Tags"},
                "MinCapacity": low,
                "MaxCapacity": high,
                "ScalableTargetARN": arn,
            }
            self._tags.add(arn, params.get("Tags") or {})
            self._registry.save()
            return {"ScalableTargetARN": arn}

    def targets(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            found = [
                each for each in self._registry.of(TARGET).values() if _fits(each, params, params.get("ResourceIds"))
            ]
            listed, token = _page(found, params, "ResourceId")
            return {"ScalableTargets": listed, "NextToken": token}

    def deregister(self, params: JsonDocument) -> None:
        """Deregisters a target and deletes its policies.

        :raises ObjectNotFoundException: it is not registered.
        """
        with self._registry.lock:
            key = self._registered(params)
            self._registry.forget_tags(self._registry.of(TARGET).pop(key)["ScalableTargetARN"])
            policies = self._registry.of(POLICY)
            for name in [name for name, policy in policies.items() if _key(policy) == key]:
                del policies[name]
            self._registry.save()

    def put(self, params: JsonDocument) -> JsonDocument:
        """Creates or updates a scaling policy.

        :raises ObjectNotFoundException: the target is not registered.
        :raises ValidationException: the policy's type and its configuration do not go together.
        :raises LimitExceededException: the target has as many policies as it may have.
        """
        with self._registry.lock:
            key = self._registered(params)
            policies = self._registry.of(POLICY)
            before = policies.get(f"{key}|{params['PolicyName']}", {})
            kind = params.get("PolicyType") or before.get("PolicyType") or "StepScaling"
            given = [member for member in CONFIGURATIONS.values() if params.get(member)]
            if given != [CONFIGURATIONS[kind]]:
                raise ValidationException(f"A policy of type {kind} needs {CONFIGURATIONS[kind]}, and no other.")
            if not before and sum(_key(policy) == key for policy in policies.values()) >= MOST_POLICIES:
                raise LimitExceededException(f"A scalable target has at most {MOST_POLICIES} scaling policies.")
            name = f"scalingPolicy:{uuid.uuid4()}:resource/sagemaker/{params['ResourceId']}"
            arn = before.get("PolicyARN") or self._arn(f"{name}:policyName/{params['PolicyName']}")
            policies[f"{key}|{params['PolicyName']}"] = {
                "CreationTime": now(),
                **before,
                **params,
                "PolicyType": kind,
                "PolicyARN": arn,
            }
            self._registry.save()
            return {"PolicyARN": arn, "Alarms": []}

    def policies(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            resources = [params["ResourceId"]] if params.get("ResourceId") else None
            found = [
                each
                for each in self._registry.of(POLICY).values()
                if _fits(each, params, resources)
                and each["PolicyName"] in params.get("PolicyNames", [each["PolicyName"]])
            ]
            listed, token = _page(found, params, "PolicyName")
            return {"ScalingPolicies": [{"Alarms": [], **each} for each in listed], "NextToken": token}

    def delete(self, params: JsonDocument) -> None:
        """Deletes a scaling policy.

        :raises ObjectNotFoundException: there is no such policy.
        """
        with self._registry.lock:
            name = f"{_key(params)}|{params['PolicyName']}"
            if name not in self._registry.of(POLICY):
                raise ObjectNotFoundException(f"No scaling policy found for {params['PolicyName']}.")
            del self._registry.of(POLICY)[name]
            self._registry.save()

    def _registered(self, params: JsonDocument) -> str:
        key = _key(params)
        if key not in self._registry.of(TARGET):
            raise ObjectNotFoundException(
                f"No scalable target registered for service namespace: {params['ServiceNamespace']}, "
                f"resource ID: {params['ResourceId']}, scalable dimension: {params['ScalableDimension']}"
            )
        return key

    def _check(self, params: JsonDocument) -> None:
        if params["ServiceNamespace"] != "sagemaker":
            raise ValidationException(f"Service namespace {params['ServiceNamespace']} is not on this machine.")
        pattern = DIMENSIONS.get(params["ScalableDimension"])
        if pattern is None:
            raise ValidationException(f"Scalable dimension {params['ScalableDimension']} is not on this machine.")
        found = pattern.fullmatch(params["ResourceId"])
        if found is None:
            raise ValidationException(f"Resource ID {params['ResourceId']} does not fit {params['ScalableDimension']}.")
        if not self._exists(found.groupdict()):
            raise ValidationException(f"SageMaker resource {params['ResourceId']} does not exist.")

    def _exists(self, resource: dict[str, str]) -> bool:
        if (component := resource.get("component")) is not None:
            return component in self._registry.of(COMPONENT)
        endpoint = self._registry.of(ENDPOINT).get(resource["endpoint"])
        variants = endpoint["Plan"]["Variants"] if endpoint else []
        return any(each["VariantName"] == resource["variant"] for each in variants)

    def _arn(self, resource: str) -> str:
        return f"arn:aws:application-autoscaling:{self._registry.region}:{self._registry.account}:{resource}"


def _key(params: JsonDocument) -> str:
    return f"{params['ResourceId']}|{params['ScalableDimension']}"


def _fits(document: JsonDocument, params: JsonDocument, resources: list[str] | None) -> bool:
    return (
        document["ServiceNamespace"] == params["ServiceNamespace"]
        and params.get("ScalableDimension") in (None, document["ScalableDimension"])
        and (not resources or document["ResourceId"] in resources)
    )


def _page(documents: list[JsonDocument], params: JsonDocument, name: str) -> tuple[list[JsonDocument], str | None]:
    paging = {key: params[key] for key in ("NextToken", "MaxResults") if params.get(key) is not None}
    try:
        return page(documents, {"MaxResults": 50, **paging, "SortBy": "Name", "SortOrder": "Ascending"}, name)
    except ControlError as error:
        raise InvalidNextTokenException(error.message) from error
