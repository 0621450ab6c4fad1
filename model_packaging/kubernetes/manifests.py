"""A Deployment with its Service, and what belongs to them."""

from __future__ import annotations

from typing import Any

from model_packaging.kubernetes.pod import SETTINGS_FILE, pod_spec
from model_packaging.kubernetes.workload import PORT, Workload

Members = dict[str, Any]
# The image is several GB, and a node may have to be made first.
PULLING = 900
# As SageMaker's scaling here: what is not needed for ten minutes goes, what is needed comes at once.
SCALE_IN_WINDOW = 600


def manifests(work: Workload) -> list[Members]:
    """In the order in which they can be applied."""
    return [*surroundings(work), _service(work), _deployment(work), *_disruption(work), *_autoscaler(work)]


def surroundings(work: Workload) -> list[Members]:
    """The service account, and the settings where they are a document."""
    account: Members = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(work)}
    if work.role:
        account["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": work.role}
    if work.settings is None:
        return [account]
    data = {SETTINGS_FILE: work.settings}
    return [account, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(work), "data": data}]


def metadata(work: Workload) -> Members:
    found: Members = {"name": work.name, "labels": labels(work)}
    return {**found, "namespace": work.namespace} if work.namespace else found


def labels(work: Workload) -> dict[str, str]:
    return {"app.kubernetes.io/name": work.name, "app.kubernetes.io/part-of": "neuron-endpoint"}


def selector(work: Workload) -> Members:
    return {"app.kubernetes.io/name": work.name}


def scrape(work: Workload) -> dict[str, str]:
    """Read by Prometheus where it is set up to look for these."""
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(PORT)}


def _service(work: Workload) -> Members:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(work),
        "spec": {"selector": selector(work), "ports": ports},
    }


def _deployment(work: Workload) -> Members:
    spec: Members = {
        "selector": {"matchLabels": selector(work)},
        # A new pod beside the old ones, which answer until it is ready.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "progressDeadlineSeconds": PULLING + work.size.startup,
        "template": {"metadata": {"labels": labels(work), "annotations": scrape(work)}, "spec": pod_spec(work)},
    }
    # With an autoscaler the number of replicas is no longer the manifest's to say.
    if work.scaling is None:
        spec = {"replicas": work.replicas, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(work), "spec": spec}


def _disruption(work: Workload) -> list[Members]:
    if work.fewest < 2:
        return []  # with one replica it would keep a node from ever being drained
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(work),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(work)}},
        }
    ]


def _autoscaler(work: Workload) -> list[Members]:
    """By requests in flight for each pod, which the cluster's metrics adapter must serve as a pod metric."""
    scaling = work.scaling
    if scaling is None:
        return []
    target = {"type": "AverageValue", "averageValue": f"{round(scaling.concurrency * 1000)}m"}
    metric = {"type": "Pods", "pods": {"metric": {"name": "endpoint_requests_in_flight"}, "target": target}}
    return [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(work),
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.name},
                "minReplicas": scaling.minimum,
                "maxReplicas": scaling.maximum,
                "metrics": [metric],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": SCALE_IN_WINDOW}},
            },
        }
    ]
