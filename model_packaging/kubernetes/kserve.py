"""An InferenceService whose predictor is this container.

The predictor is given whole, not through a ServingRuntime: what it asks of a node follows from the model, so a runtime
that several models share would say the wrong thing for all but one. In KServe's Standard mode (once RawDeployment),
since a start may take longer than Knative gives a revision. Source: kserve/kserve, pkg/constants/constants.go and
pkg/controller/v1beta1/inferenceservice/reconcilers/keda.
"""

from __future__ import annotations

from typing import Any

from handler.errors import SettingError
from model_packaging.kubernetes.manifests import SCALE_IN_WINDOW, metadata, scrape, surroundings
from model_packaging.kubernetes.pod import pod_spec
from model_packaging.kubernetes.workload import Workload

Members = dict[str, Any]
CONTAINER = "kserve-container"


def kserve_manifests(work: Workload) -> list[Members]:
    """:raises SettingError: scaling without the address of a Prometheus: KServe scales by requests through KEDA, which
    asks one."""
    return [*surroundings(work), _service(work)]


def _service(work: Workload) -> Members:
    about = metadata(work)
    annotations = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}
    predictor: Members = {"minReplicas": work.fewest, "maxReplicas": work.fewest, "annotations": scrape(work)}
    if work.scaling is not None:
        annotations["serving.kserve.io/autoscalerClass"] = "keda"
        behavior = {"scaleDown": {"stabilizationWindowSeconds": SCALE_IN_WINDOW}}
        predictor |= {
            "maxReplicas": work.scaling.maximum,
            "autoScaling": {"metrics": [_metric(work)], "behavior": behavior},
        }
    predictor |= {
        "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        **pod_spec(work, CONTAINER),
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {**about, "annotations": annotations},
        "spec": {"predictor": predictor},
    }


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
