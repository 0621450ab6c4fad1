"""Computes the values of the templates: a Deployment, a KServe InferenceService or a LeaderWorkerSet for a workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from handler.errors import SettingError
from model_packaging.kubernetes.pod_size import CORES, DEVICES
from model_packaging.kubernetes.template import fill_template, yaml_text
from model_packaging.kubernetes.workload import Workload

Members = dict[str, Any]
# Seconds until every proxy of the cluster knows that the pod accepts no more requests. Then SIGTERM follows.
DEREGISTRATION = 5
# Seconds for the engine to stop after the last request. SageMaker allows 5 s (30 in all); a cluster can allow more.
ENDING = 15
# Seconds for the pull. The image has several GB, and a node may have to be created first.
PULLING = 900
PROBE_PERIOD = 10
SETTINGS = "/etc/neuron-endpoint/endpoint.yaml"
MASTER = "SM_VLLM_MASTER_ADDR"


def deployment(work: Workload) -> list[Members]:
    """A Deployment with its Service, network policy, disruption budget and autoscaler, in the order to apply them."""
    return _manifests("deployment", _values(work))


def inference_service(work: Workload) -> list[Members]:
    """KServe's InferenceService.

    :raises SettingError: scaling without the address of Prometheus. KServe scales by requests through KEDA, which reads
        the metric there.
    """
    if work.scaling is not None and not work.prometheus:
        fix = "Give --prometheus http://prometheus.monitoring:9090 (yours), or leave --max out."
        raise SettingError("--max", "KServe scales by requests in flight only through KEDA and Prometheus", fix)
    namespace = f',namespace="{work.namespace}"' if work.namespace else ""
    values = _values(work) | {
        "container": "kserve-container",  # KServe requires this name
        "autoscaler": "keda" if work.scaling else "none",
        "prometheus": work.prometheus,
        "query": f'sum(endpoint_requests_in_flight{{pod=~"{work.name}-predictor-.*"{namespace}}})',
    }
    return _manifests("kserve", values)


def node_group(work: Workload, nodes: int) -> list[Members]:
    """A LeaderWorkerSet.

    :param nodes: pods that share one model. The workload's replicas are groups of pods.
    """
    values = _values(work)
    spread = [*values["env"], {"name": "SM_VLLM_NNODES", "value": str(nodes)}]
    leader = [*spread, {"name": MASTER, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    worker = [*spread, {"name": MASTER, "value": "$(LWS_LEADER_ADDRESS)"}]
    changes = {"args": ["neuron-endpoint", "node"], "env": worker, "serves": False}
    (worker_pod,) = fill_template("pod", values | changes)
    return _manifests("node_group", values | {"env": leader, "nodes": nodes, "worker": worker_pod})


def as_text(work: Workload, documents: Iterable[Members]) -> str:
    """The manifests as YAML. A comment at the top explains how the values were computed."""
    head = [f"# {work.name}, made by `neuron-endpoint kubernetes`. The values were computed as follows:"]
    head += [f"#   {reason}" for reason in work.size.reasons]
    if work.secrets:
        pairs = " ".join(f"--from-literal={name}=..." for name in work.secrets)
        head.append(f"# It needs a Secret, which you create: kubectl create secret generic {work.name} {pairs}")
    return "\n".join([*head, yaml_text(documents)])


def _manifests(template: str, values: Mapping[str, Any]) -> list[Members]:
    (pod,) = fill_template("pod", values)
    return [*fill_template("account", values), *fill_template(template, {**values, "pod": pod})]


def _values(work: Workload) -> Members:
    size, scaling = work.size, work.scaling
    return {
        "name": work.name,
        "labels": {"app.kubernetes.io/name": work.name, "app.kubernetes.io/part-of": "neuron-endpoint"},
        "namespace": work.namespace,
        "role": work.role,
        "settings": work.settings,
        "image": work.image,
        "instance": work.instance.name if work.instance else None,
        "container": "endpoint",
        "args": ["serve"],
        "serves": True,
        "env": _environment(work),
        # The annotations that a Prometheus with the usual configuration reads.
        "scrape": {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": "8080"},
        "grace": DEREGISTRATION + ceil(work.drain) + ENDING,
        "deregistration": DEREGISTRATION,
        "start_probes": ceil(size.startup / PROBE_PERIOD),
        "progress_deadline": PULLING + size.startup,
        "cpus": str(size.cpus),
        "memory": size.memory,
        "memory_limit": size.memory_limit,
        "shm": size.shm,
        "disk": size.disk,
        "devices": size.devices if size.resource == DEVICES else None,
        "cores": size.devices if size.resource == CORES else None,
        "replicas": None if scaling else work.replicas,
        "several": work.fewest > 1,
        "scaled": scaling is not None,
        "minimum": work.fewest,
        "maximum": scaling.maximum if scaling else work.fewest,
        "concurrency": f"{scaling.concurrency:g}" if scaling else None,
        "concurrency_milli": round(scaling.concurrency * 1000) if scaling else None,
    }


def _environment(work: Workload) -> list[Members]:
    variables = {
        # The user has no home directory. Libraries write their files to the scratch volume instead.
        "HOME": "/tmp",  # noqa: S108
        "ENDPOINT_DRAIN": f"{work.drain:g}",
        "ENDPOINT_LOG_FORMAT": "json",
        **work.plain,
    }
    if work.settings:
        variables["ENDPOINT_CONFIG"] = SETTINGS
    if work.instance is not None:
        variables.setdefault("ENDPOINT_INSTANCE", work.instance.name)
    secrets = [{"name": name, "valueFrom": {"secretKeyRef": {"name": work.name, "key": name}}} for name in work.secrets]
    return [*({"name": name, "value": value} for name, value in sorted(variables.items())), *secrets]
