"""Builds an InferenceService whose predictor is this container.

The predictor has a complete pod specification and no ServingRuntime: its resources follow from the model, so one
runtime would not fit several models. It uses KServe's Standard mode (formerly RawDeployment), because a start may take
longer than Knative allows. Source: kserve/kserve, pkg/constants/constants.go and
pkg/controller/v1beta1/inferenceservice/reconcilers/keda.
"""

from __future__ import annotations

from typing import Any

from handler.errors import SettingError
from model_packaging.kubernetes.manifests import ROLLING_UPDATE, SCALE_IN, manifest, scrape, surroundings
from model_packaging.kubernetes.pod import pod_spec
from model_packaging.kubernetes.workload import Workload

Members = dict[str, Any]
CONTAINER = "kserve-container"


def kserve_manifests(work: Workload) -> list[Members]:
    """Returns the manifests.

    :raises SettingError: scaling without the address of Prometheus. KServe scales by requests through KEDA, which reads
        the metric there.
    """
    return [*surroundings(work), _service(work)]


def _service(work: Workload) -> Members:
    annotations = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}
    predictor: Members = {"minReplicas": work.fewest, "maxReplicas": work.fewest, "annotations": scrape(work)}
    if work.scaling is not None:
        annotations["serving.kserve.io/autoscalerClass"] = "keda"
        autoscaling = {"metrics": [_metric(work)], "behavior": SCALE_IN}
        predictor |= {"maxReplicas": work.scaling.maximum, "autoScaling": autoscaling}
    predictor |= {"deploymentStrategy": ROLLING_UPDATE, **pod_spec(work, CONTAINER)}
    service = manifest("serving.kserve.io/v1beta1", "InferenceService", work, spec={"predictor": predictor})
    service["metadata"]["annotations"] = annotations
    return service


def _metric(work: Workload) -> Members:
    if not work.prometheus:
        fix = "Give --prometheus http://prometheus.monitoring:9090 (yours), or leave --max out."
        raise SettingError("--max", "KServe scales by requests in flight only through KEDA and Prometheus", fix)
    assert work.scaling is not None
    where = f',namespace="{work.namespace}"' if work.namespace else ""
    query = f'sum(endpoint_requests_in_flight{{pod=~"{work.name}-predictor-.*"{where}}})'
    return {
        "type": "External",
        "external": {
            "metric": {"backend": "prometheus", "serverAddress": work.prometheus, "query": query},
            # KServe's reconciler reads only `value`. KEDA uses it as the average per replica.
            "target": {"type": "Value", "value": f"{work.scaling.concurrency:g}"},
        },
    }
