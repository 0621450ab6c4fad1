"""The operations on endpoint configurations. A configuration has variants: models on a number of instances."""

from __future__ import annotations

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.models import container_of
from local_sagemaker.control.registry import CONFIG, MODEL, JsonDocument, now
from local_sagemaker.control.resource_operations import ResourceOperations

UNSUPPORTED = ("DataCaptureConfig", "ExplainerConfig", "ShadowProductionVariants")
UNSUPPORTED_OF_VARIANT = ("ServerlessConfig", "InstancePools", "CoreDumpConfig")

# The error of SageMaker has no source. InvokeEndpointAsync has neither InferenceComponentName nor TargetModel.
NO_TARGET = (
    "AsyncInferenceConfig needs a model in each variant that is no MultiModel one: InvokeEndpointAsync names neither "
    "an inference component nor a target model."
)
# Families with disks of their own, beside those with a "d" in their name, such as p4d (aws/sagemaker-python-sdk,
# `volume_size_supported` and pull request 4828). That Trn2 is one of them has no source.
WITH_DISKS = ("g5", "trn1", "trn1n", "trn2")


class EndpointConfigs(ResourceOperations):
    kind = CONFIG
    noun = "EndpointConfig"
    listed = "EndpointConfigs"

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates an endpoint configuration.

        :raises ValidationException: it exists, a model does not exist, or a member is invalid.
        """
        name = params["EndpointConfigName"]
        arn = self._registry.arn(CONFIG, name)
        _check(params)
        with self._registry.lock:
            self._check_name(name)
            for variant in params["ProductionVariants"]:
                model = variant.get("ModelName")
                container = container_of(self._registry.get(MODEL, model)) if model else None
                if container is not None:
                    _check_mode(container, variant["InstanceType"])
                if params.get("AsyncInferenceConfig") and (container is None or container.get("Mode") == "MultiModel"):
                    raise ValidationException(NO_TARGET)
            self._registry.add(CONFIG, name, {**params, "EndpointConfigArn": arn, "CreationTime": now()})
        return {"EndpointConfigArn": arn}


def _check(config: JsonDocument) -> None:
    for member in UNSUPPORTED:
        if config.get(member):
            raise _unsupported(member)
    if config.get("AsyncInferenceConfig", {}).get("OutputConfig", {}).get("NotificationConfig"):
        raise _unsupported("AsyncInferenceConfig.OutputConfig.NotificationConfig")
    variants = config["ProductionVariants"]
    names = [variant["VariantName"] for variant in variants]
    if len(set(names)) != len(names):
        raise ValidationException("Each ProductionVariant must have a VariantName of its own.")
    for variant in variants:
        for member in UNSUPPORTED_OF_VARIANT:
            if variant.get(member):
                raise _unsupported(f"ProductionVariants.{member}")
        for member in ("InstanceType", "InitialInstanceCount"):
            if variant.get(member) is None:
                raise ValidationException(f"{member} must be given for the variant {variant['VariantName']}.")
        _check_routing(variant.get("RoutingConfig", {}))
        _check_scaling(variant)
        family = variant["InstanceType"].split(".")[1]
        if variant.get("VolumeSizeInGB") and ("d" in family or family in WITH_DISKS):
            instance = variant["InstanceType"]
            raise ValidationException(f"VolumeSizeInGB can't be given for {instance}, which has its own disks.")
        if not variant.get("ModelName") and not config.get("ExecutionRoleArn"):
            raise ValidationException(
                "ExecutionRoleArn must be given where a variant has no ModelName (its models are inference components)."
            )
    if sum(weight_of(variant) for variant in variants) <= 0:
        raise ValidationException("At least one variant must have a weight above 0.")


def _check_mode(container: JsonDocument, instance: str) -> None:
    """Multi-model endpoints have CPU and some GPU instances (developer guide, "multi-model-support")."""
    if container.get("Mode") == "MultiModel" and instance.startswith(("ml.inf", "ml.trn")):
        raise ValidationException(f"Multi-model endpoints are not supported on the instance type {instance}.")


def _check_routing(routing: JsonDocument) -> None:
    """Checks the rules that the members' documentation in botocore's model states."""
    about, aware = routing.get("PrefixAwareRoutingConfig"), routing.get("RoutingStrategy") == "PREFIX_AWARE"
    if about is not None and not aware:
        raise ValidationException("PrefixAwareRoutingConfig may be given only where RoutingStrategy is PREFIX_AWARE.")
    if aware and not {"PrefixLength", "ConcurrencyThreshold"} <= (about or {}).keys():
        raise ValidationException("PrefixLength and ConcurrencyThreshold are required for PREFIX_AWARE.")


def _check_scaling(variant: JsonDocument) -> None:
    """The first message is SageMaker's (hashicorp/terraform-provider-aws, pull request 45926)."""
    scaling = variant.get("ManagedInstanceScaling", {})
    if scaling and variant.get("ModelName"):
        raise ValidationException("ManagedInstanceScaling is only supported for inference component endpoints.")
    if scaling.get("MinInstanceCount", 0) > scaling.get("MaxInstanceCount", scaling.get("MinInstanceCount", 0)):
        raise ValidationException("MinInstanceCount must not exceed MaxInstanceCount in ManagedInstanceScaling.")


def weight_of(variant: JsonDocument) -> float:
    return float(variant.get("InitialVariantWeight", 1.0))


def _unsupported(member: str) -> ValidationException:
    return ValidationException(f"{member} is not supported on this machine's SageMaker.")
