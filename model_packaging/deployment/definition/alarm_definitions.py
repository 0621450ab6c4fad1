"""Defines the CloudWatch alarms of an endpoint: server errors and full disks."""

from __future__ import annotations

from typing import Any

from model_packaging.deployment.definition.request import DeploymentRequest

Members = dict[str, Any]


def alarms(request: DeploymentRequest, variant: str) -> list[Members]:
    """Returns the alarms `<name>-errors` (the endpoint replies with 5xx) and `<name>-disk` (a disk is filling up)."""
    by_variant = [{"Name": "EndpointName", "Value": request.name}, {"Name": "VariantName", "Value": variant}]
    by_component = [{"Name": "InferenceComponentName", "Value": request.name}]
    above = {"ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching"}
    action = {"AlarmActions": [request.alarm_topic]} if request.alarm_topic else {}
    errors: Members = {
        "AlarmName": f"{request.name}-errors",
        "AlarmDescription": "More than 5 answers with 5xx in a minute, three times in five minutes.",
        "Namespace": "AWS/SageMaker",
        "MetricName": "Invocation5XXErrors",
        "Dimensions": by_component if request.component else by_variant,
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 5,
        "DatapointsToAlarm": 3,
        "Threshold": 5.0,
        **above,
        **action,
    }
    disk: Members = {
        "AlarmName": f"{request.name}-disk",
        "AlarmDescription": "An instance's disk is more than 90% full.",
        "Namespace": "/aws/sagemaker/Endpoints",
        "MetricName": "DiskUtilization",
        "Dimensions": by_variant,
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "Threshold": 90.0,
        **above,
        **action,
    }
    return [errors, disk]
