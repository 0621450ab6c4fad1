"""An InferenceService whose predictor is this container.

The predictor is given whole, not through a ServingRuntime: what it asks of a node follows from the model, so a runtime
that several models share would say the wrong thing for all but one. In KServe's Standard mode (once RawDeployment),
since a start may take longer than Knative gives a revision. Source: kserve/kserve, pkg/constants/constants.go and
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
    """:raises SettingError: scaling without the address of a Prometheus: KServe scales by requests through KEDA, which
    asks one."""
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
            # Its reconciler reads `value` only; KEDA takes that for the average of a replica.
            "target": {"type": "Value", "value": f"{work.scaling.concurrency:g}"},
        },
    }
