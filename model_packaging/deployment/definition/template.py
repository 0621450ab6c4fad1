"""Builds a CloudFormation template of the same resources.

CloudFormation's properties are the API's parameters with few exceptions, all of which are here. Secret variables
become NoEcho parameters. (AWS resource reference: AWS::SageMaker::Model, EndpointConfig, Endpoint,
InferenceComponent; AWS::ApplicationAutoScaling::ScalableTarget, ScalingPolicy; AWS::CloudWatch::Alarm.)
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

from handler.config.secret_values import is_secret
from model_packaging.deployment.definition.resources import Resources

Members = dict[str, Any]


def template(desired: Resources) -> str:
    """Returns the template as JSON. The same request gives the same text."""
    desired = deepcopy(desired)
    parts: Members = {"Model": _part("SageMaker::Model", desired.model, "ModelName")}
    parts["Model"]["Properties"]["ExecutionRoleArn"] = {"Ref": "Role"}
    parameters: Members = {"Role": {"Type": "String", "Default": desired.model["ExecutionRoleArn"]}}
    _hide_secrets(parts["Model"]["Properties"], parameters)
    config, variant = desired.config, desired.config["ProductionVariants"][0]
    if "ModelName" in variant:
        variant["ModelName"] = {"Fn::GetAtt": ["Model", "ModelName"]}
    if "ExecutionRoleArn" in config:
        config["ExecutionRoleArn"] = {"Ref": "Role"}
    parts["EndpointConfig"] = _part("SageMaker::EndpointConfig", config, "EndpointConfigName")
    endpoint = {**desired.endpoint, "EndpointConfigName": {"Fn::GetAtt": ["EndpointConfig", "EndpointConfigName"]}}
    parts["Endpoint"] = _part("SageMaker::Endpoint", {**endpoint, **_deployment(desired)})
    scaled = "Endpoint"
    if desired.component is not None:
        parts["Component"] = _component(desired.component)
        scaled = "Component"
    _scaling(parts, desired, scaled)
    for alarm in desired.alarms:
        name = "".join(word.capitalize() for word in alarm["AlarmName"].removeprefix(f"{desired.name}-").split("-"))
        parts[f"Alarm{name}"] = _part("CloudWatch::Alarm", alarm)
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"SageMaker endpoint {desired.name}, made by neuron-endpoint.",
        "Parameters": parameters,
        "Resources": parts,
        "Outputs": {"EndpointName": {"Value": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _part(kind: str, members: Members, *excluded: str) -> Members:
    """Returns one resource. CloudFormation names immutable resources, because it creates a second one to replace it."""
    properties = {key: value for key, value in members.items() if key not in excluded}
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _hide_secrets(model: Members, parameters: Members) -> None:
    environment = model["PrimaryContainer"].get("Environment", {})
    for name, value in environment.items():
        if value and is_secret(name, value):
            # ENDPOINT_CONFIG, by its own name, would be the parameter EndpointConfig, which is a resource.
            parameter = "Secret" + re.sub(r"[^A-Za-z0-9]", "", name.title())
            parameters[parameter] = {"Type": "String", "NoEcho": True}
            environment[name] = {"Ref": parameter}


def _deployment(desired: Resources) -> Members:
    members = ("RetainAllVariantProperties", "DeploymentConfig")
    return {key: desired.update[key] for key in members if key in desired.update}


def _component(members: Members) -> Members:
    specification = {**members["Specification"], "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]}}
    endpoint = {"Fn::GetAtt": ["Endpoint", "EndpointName"]}
    return _part("SageMaker::InferenceComponent", {**members, "EndpointName": endpoint, "Specification": specification})


def _scaling(parts: Members, desired: Resources, scaled: str) -> None:
    scaling = desired.scaling
    if scaling is None:
        return
    target = _part("ApplicationAutoScaling::ScalableTarget", scaling.target, "Tags")
    parts["ScalableTarget"] = {**target, "DependsOn": scaled}
    by_target = ("ServiceNamespace", "ResourceId", "ScalableDimension")
    for name, policy in (("ScalingPolicy", scaling.policy), ("FromZero", scaling.from_zero)):
        if policy is not None:
            part = _part("ApplicationAutoScaling::ScalingPolicy", policy, *by_target)
            part["Properties"]["ScalingTargetId"] = {"Ref": "ScalableTarget"}
            parts[name] = part
    if scaling.wake is not None:
        parts["AlarmWake"] = _part("CloudWatch::Alarm", {**scaling.wake, "AlarmActions": [{"Ref": "FromZero"}]})
