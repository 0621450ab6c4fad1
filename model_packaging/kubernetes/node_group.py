"""Builds a LeaderWorkerSet: one model on several pods. The leader serves, the workers run the rest of the engine.

Source: kubernetes-sigs/lws, api/leaderworkerset/v1 (LWS_LEADER_ADDRESS, LWS_WORKER_INDEX, labels). A group is
restarted as a whole: vLLM's executor cannot continue without one of its nodes.
"""

from __future__ import annotations

from typing import Any

from model_packaging.kubernetes.manifests import labels, manifest, scrape, selector, surroundings
from model_packaging.kubernetes.pod import pod_spec
from model_packaging.kubernetes.workload import PORT, Workload

Members = dict[str, Any]
FIRST = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
ADDRESS = "SM_VLLM_MASTER_ADDR"
# Members of a container that a worker does not have: it serves no HTTP.
FRONT = ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")


def group_manifests(work: Workload, nodes: int) -> list[Members]:
    """Returns the manifests.

    :param nodes: pods that share one model. The workload's replicas are groups of pods.
    """
    return [*surroundings(work), _service(work), _group(work, nodes)]


def _service(work: Workload) -> Members:
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    service = manifest("v1", "Service", work, spec={"selector": {**selector(work), **FIRST}, "ports": ports})
    service["metadata"]["name"] = f"{work.name}-http"  # LeaderWorkerSet makes a Service of the set's own name
    return service


def _group(work: Workload, nodes: int) -> Members:
    leader, worker = pod_spec(work), pod_spec(work)
    spread = [{"name": "SM_VLLM_NNODES", "value": str(nodes)}]
    own = {"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    leader["containers"][0]["env"] += [*spread, own]
    container = {key: value for key, value in worker["containers"][0].items() if key not in FRONT}
    container["args"] = ["neuron-endpoint", "node"]
    container["env"] = [*container["env"], *spread, {"name": ADDRESS, "value": "$(LWS_LEADER_ADDRESS)"}]
    worker["containers"] = [container]
    about = {"labels": labels(work)}
    template = {
        "size": nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": {"metadata": {**about, "annotations": scrape(work)}, "spec": leader},
        "workerTemplate": {"metadata": about, "spec": worker},
    }
    spec = {"replicas": work.replicas, "leaderWorkerTemplate": template}
    return manifest("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", work, spec=spec)
