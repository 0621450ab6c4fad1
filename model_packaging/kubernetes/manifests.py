"""Builds a Deployment with its Service, service account, settings, disruption budget and autoscaler."""

from __future__ import annotations

from typing import Any

from model_packaging.kubernetes.pod import SETTINGS_FILE, pod_spec
from model_packaging.kubernetes.workload import PORT, Workload

Members = dict[str, Any]
# Seconds. The image has several GB, and a node may have to be created first.
PULLING = 900
# As with `deploy`: a pod that is not needed for ten minutes is removed; a pod that is needed is added at once.
SCALE_IN: Members = {"scaleDown": {"stabilizationWindowSeconds": 600}}
# A new pod starts beside the old ones, which answer until it is ready.
ROLLING_UPDATE: Members = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def manifests(work: Workload) -> list[Members]:
    """Returns the manifests in the order in which they can be applied."""
    return [*surroundings(work), _service(work), _deployment(work), *_disruption(work), *_autoscaler(work)]


def surroundings(work: Workload) -> list[Members]:
    """Returns the service account, and a ConfigMap if the settings are a document."""
    account = manifest("v1", "ServiceAccount", work)
    if work.role:
        account["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": work.role}
    if work.settings is None:
        return [account]
    return [account, manifest("v1", "ConfigMap", work, data={SETTINGS_FILE: work.settings})]


def manifest(version: str, kind: str, work: Workload, **members: Any) -> Members:
    return {"apiVersion": version, "kind": kind, "metadata": metadata(work), **members}


def metadata(work: Workload) -> Members:
    found: Members = {"name": work.name, "labels": labels(work)}
    return {**found, "namespace": work.namespace} if work.namespace else found


def labels(work: Workload) -> dict[str, str]:
    return {"app.kubernetes.io/name": work.name, "app.kubernetes.io/part-of": "neuron-endpoint"}


def selector(work: Workload) -> Members:
    return {"app.kubernetes.io/name": work.name}


def scrape(work: Workload) -> dict[str, str]:
    """Returns the annotations that a Prometheus with the usual configuration reads."""
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(PORT)}


def _service(work: Workload) -> Members:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return manifest("v1", "Service", work, spec={"selector": selector(work), "ports": ports})


def _deployment(work: Workload) -> Members:
    spec: Members = {
        "selector": {"matchLabels": selector(work)},
        "strategy": ROLLING_UPDATE,
        "progressDeadlineSeconds": PULLING + work.size.startup,
        "template": {"metadata": {"labels": labels(work), "annotations": scrape(work)}, "spec": pod_spec(work)},
    }
    # An autoscaler sets the number of replicas itself.
    if work.scaling is None:
        spec = {"replicas": work.replicas, **spec}
    return manifest("apps/v1", "Deployment", work, spec=spec)


def _disruption(work: Workload) -> list[Members]:
    if work.fewest < 2:
        return []  # a budget for one replica would prevent every drain of its node
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(work)}}
    return [manifest("policy/v1", "PodDisruptionBudget", work, spec=spec)]


def _autoscaler(work: Workload) -> list[Members]:
    """Scales by requests in flight per pod. The cluster's metrics adapter has to serve this metric."""
    scaling = work.scaling
    if scaling is None:
        return []
    target = {"type": "AverageValue", "averageValue": f"{round(scaling.concurrency * 1000)}m"}
    metric = {"type": "Pods", "pods": {"metric": {"name": "endpoint_requests_in_flight"}, "target": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.name},
        "minReplicas": scaling.minimum,
        "maxReplicas": scaling.maximum,
        "metrics": [metric],
        "behavior": SCALE_IN,
    }
    return [manifest("autoscaling/v2", "HorizontalPodAutoscaler", work, spec=spec)]
