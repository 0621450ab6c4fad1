"""Describes the variants of an endpoint as the reply of DescribeEndpoint does."""

from __future__ import annotations

from local_sagemaker.control.registry import JsonDocument
from local_sagemaker.hosting.deployment import Deployment
from local_sagemaker.hosting.endpoint import LiveEndpoint


def pending_variants(live: LiveEndpoint | None) -> list[JsonDocument] | None:
    """Returns the variants that an update is starting, with their status."""
    pending = live.pending if live else None
    if pending is None:
        return None
    status = [{"Status": pending.stage, "StartTime": pending.began}]
    return [{**each, "VariantStatus": status} for each in described_variants(pending.plan, pending)]


def described_variants(plan: JsonDocument, deployment: Deployment | None) -> list[JsonDocument]:
    """Returns the variants of a plan with what runs of them now.

    :param deployment: None if nothing runs.
    """
    running = deployment.variants if deployment else {}
    described = []
    for planned in plan["Variants"]:
        variant = running.get(planned["VariantName"])
        current = variant.count if variant else 0
        if variant and variant.pool:
            current = len(variant.pool.healthy())
        document = {
            "VariantName": planned["VariantName"],
            "CurrentWeight": variant.weight if variant else 0.0,
            "DesiredWeight": planned["Weight"],
            "CurrentInstanceCount": current,
            "DesiredInstanceCount": variant.count if variant else planned["Count"],
            "RoutingConfig": planned.get("RoutingConfig"),
            "ManagedInstanceScaling": planned.get("ManagedInstanceScaling"),
        }
        if container := planned.get("Container"):
            document["DeployedImages"] = [{"SpecifiedImage": container["Image"], "ResolvedImage": container["Image"]}]
        described.append(document)
    return described
