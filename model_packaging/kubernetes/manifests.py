"""Computes the values of the templates, and fills them: the manifests of one workload, in the order to apply them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from math import ceil
from typing import Any

from handler.config.loading.document_text import parse
from handler.errors import SettingError
from model_packaging.kubernetes.pod_size import CORES, DEVICES
from model_packaging.kubernetes.template import fill_template, yaml_text
from model_packaging.kubernetes.workload import Workload

LABEL = 63  # characters of a label's value

Members = dict[str, Any]
# Seconds until every proxy of the cluster knows that the pod accepts no more requests. Then SIGTERM follows.
DEREGISTRATION = 5
# Seconds for the engine to stop after the last request. SageMaker allows 5 s (30 in all); a cluster can allow more.
ENDING = 15
# Seconds for the pull. The image has several GB, and a node may have to be created first.
PULLING = 900
PROBE_PERIOD = 10
SETTINGS = "/etc/neuron-endpoint"
NODES, MASTER = "SM_VLLM_NNODES", "SM_VLLM_MASTER_ADDR"
# The address that vLLM's NIXL connector binds to, and tells the other side.
NIXL_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
PORT = 8080
# The port on which KServe expects the server of a LLMInferenceService.
LLM_PORT = 8000
# Where the volume of a shared artifact store is mounted.
SHARED_STORE = "/var/neuron-endpoint/artifacts"
# A workspace of Amazon Managed Prometheus, as HyperPod's schema has it.
WORKSPACE = re.compile(r"https://aps-workspaces\.[a-zA-Z0-9.-]+\.amazonaws\.com/workspaces/ws-[a-zA-Z0-9-]+")


def deployment(work: Workload) -> list[Members]:
    """A Deployment with its Service, network policy and autoscaler."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.name}
    return _manifests(work, "deployment", {"target": target})


def inference_service(work: Workload) -> list[Members]:
    """KServe's InferenceService.

    :raises SettingError: scaling without the address of Prometheus. KServe scales by requests through KEDA, which reads
        the metric there.
    """
    if work.scaling is not None and not work.prometheus:
        fix = "Give --prometheus http://prometheus.monitoring:9090 (yours), or leave --max out."
        raise SettingError("--max", "KServe scales by requests in flight only through KEDA and Prometheus", fix)
    kserve = {
        "container": "kserve-container",  # KServe requires this name
        "autoscaler": "keda" if work.scaling else "none",
        # A long name leaves no room for the second hyphen: Kubernetes cuts what precedes its five random characters.
        "query": _query(work, f"{work.name}-predictor-[a-z0-9]+-?[a-z0-9]{{5}}"),
        "selector": {"serving.kserve.io/inferenceservice": work.name},
    }
    return _manifests(work, "kserve", kserve)


def llm_inference_service(work: Workload) -> list[Members]:
    """KServe's LLMInferenceService. Its controller makes the workload, the InferencePool, the picker and the route."""
    kserve = {
        "container": "main",  # KServe requires this name and this port, and its own template has a command
        "port": LLM_PORT,
        "command": ["/usr/bin/env"],
        "model_uri": work.model if "://" in work.model else f"hf://{work.model}",
        "selector": {"app.kubernetes.io/name": work.name, "kserve.io/component": "workload"},
        "env": [*_environment(work), {"name": "SAGEMAKER_BIND_TO_PORT", "value": str(LLM_PORT)}],
        "scrape": _scrape(LLM_PORT),
        # KServe merges its template into this pod. It has an exec there, and Kubernetes refuses two kinds in one hook.
        "prestop": {"exec": {"command": ["/bin/sleep", str(DEREGISTRATION)]}},
    }
    return _manifests(work, "llm_service", kserve)


def hyperpod_endpoint(work: Workload) -> list[Members]:
    """HyperPod's InferenceEndpointConfig. Its operator makes the pods, and mounts no file of settings into them.

    :raises SettingError: an option that the operator has no field for.
    """
    options = {"--dra": work.dra, "--karpenter": work.node_class, "--store-class": work.storage_class}
    if unsupported := [option for option, value in options.items() if value]:
        fix = f"Leave {unsupported[0]} or --hyperpod out."
        raise SettingError(unsupported[0], "HyperPod's operator has no field for it", fix)
    if work.instance is None:
        raise SettingError("--cpu", "HyperPod's endpoints are on ml. instances", "Give --instance.")
    if work.scaling is not None and not WORKSPACE.fullmatch(work.prometheus or ""):
        fix = "Give --prometheus https://aps-workspaces.REGION.amazonaws.com/workspaces/ws-ID, or leave --max out."
        raise SettingError("--max", "HyperPod scales by a workspace of Amazon Managed Prometheus", fix)
    (pod,) = fill_template("pod", _values(work))
    container = pod["containers"][0]
    if work.document.endswith(".properties"):
        raise SettingError("--config", "no variable holds Java's properties", "Write the settings as YAML.")
    variables = {"ENDPOINT_CONFIG": json.dumps(parse(work.settings.encode(), work.document))} if work.settings else {}
    inline = replace(work, settings=None, environment={**work.environment, **variables})
    hyperpod = {
        "settings": None,
        "several": False,  # the labels of the operator's pods are its own
        "env": _environment(inline),
        "resources": container["resources"],
        "probes": {name: container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")},
        "target_value": work.scaling.concurrency if work.scaling else None,
        "query": _query(work, f"{work.name}-.*"),  # how the operator names the pods is not documented
    }
    return _manifests(work, "hyperpod", hyperpod)


def node_group(work: Workload, nodes: int) -> list[Members]:
    """A LeaderWorkerSet with the Service of its leaders and their autoscaler.

    :param nodes: pods that share one model. The workload's replicas are groups of pods.
    """
    spread = [*_environment(work), {"name": NODES, "value": str(nodes)}]
    leader = [*spread, {"name": MASTER, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    worker = [*spread, {"name": MASTER, "value": "$(LWS_LEADER_ADDRESS)"}]
    changes = {"args": ["neuron-endpoint", "node"], "env": worker, "serves": False}
    (worker_pod,) = fill_template("pod", _values(work) | changes)
    group = {
        "env": leader,
        "nodes": nodes,
        "worker": worker_pod,
        "query": _query(work, f"{work.name}-[0-9]+"),
        "selector": {"app.kubernetes.io/name": work.name, "leaderworkerset.sigs.k8s.io/worker-index": "0"},
        "target": {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": work.name},
    }
    return _manifests(work, "node_group", group, nodes)


def compile_job(work: Workload) -> list[Members]:
    """A Job that compiles into the artifact store, with what its pod needs.

    :raises SettingError: there is no store that other pods read.
    """
    store = f"file://{SHARED_STORE}" if work.storage_class else work.environment.get("ENDPOINT_ARTIFACT_STORE", "")
    if not store.startswith("s3://") and not work.storage_class:
        fix = "Give --set ENDPOINT_ARTIFACT_STORE=s3://bucket/prefix, or --store-class."
        raise SettingError("--compile-job", "the artifacts of the job need a store that other pods read", fix)
    arguments = ["neuron-endpoint", "compile", work.model, "--store", store, "--env"]
    # Not the endpoint's name: its budget, InferencePool and Service would count this pod as one that serves.
    labels = {**_labels(work), "app.kubernetes.io/name": f"{work.name}-compile"}
    job = {"args": arguments, "serves": False, "restart": "Never", "several": False, "pod_labels": labels}
    return _manifests(work, "compile_job", job)


def as_text(work: Workload, documents: Iterable[Members]) -> str:
    """The manifests as YAML. A comment at the top explains how the values were computed."""
    head = [f"# {work.name}, made by `neuron-endpoint kubernetes`. The values were computed as follows:"]
    head += [f"#   {reason}" for reason in work.size.reasons]
    if work.secrets:
        pairs = " ".join(f"--from-literal={name}=..." for name in work.secrets)
        create = "kubectl create secret generic" + (f" -n {work.namespace}" if work.namespace else "")
        head.append(f"# It needs a Secret, which you create: {create} {work.name} {pairs}")
    return "\n".join([*head, yaml_text(documents)])


def _manifests(work: Workload, template: str, changes: Members, nodes: int = 1) -> list[Members]:
    """Fills the templates: what all kinds have, the kind's own, and scaling and routing if they are asked for."""
    values = _values(work, nodes) | changes
    (values["pod"],) = fill_template("pod", values)
    templates = ["account", template]
    if "target" in changes:
        templates += ["scaling"]
        templates += ["gateway"] if work.gateway else []
    return [document for name in templates for document in fill_template(name, values)]


def _values(work: Workload, nodes: int = 1) -> Members:
    size, scaling, claimed = work.size, work.scaling, work.dra
    pods_of_node = max(1, work.instance.chips // size.device_group) if work.instance else 1
    gateway_namespace, _, gateway = (work.gateway or "").rpartition("/")
    return {
        "name": work.name,
        "labels": _labels(work),
        "selector": {"app.kubernetes.io/name": work.name},
        "namespace": work.namespace,
        "transfers": work.transfers,
        "role": work.role,
        "settings": {work.document: work.settings} if work.settings else None,
        "image": work.image,
        "instance": work.instance.name if work.instance else None,
        "container": "endpoint",
        "command": None,
        "args": ["serve"],
        "port": PORT,
        "serves": True,
        "restart": None,
        "env": _environment(work),
        "scrape": _scrape(PORT),
        "grace": DEREGISTRATION + ceil(work.drain) + ENDING,
        "prestop": {"sleep": {"seconds": DEREGISTRATION}},
        "start_probes": ceil(size.startup / PROBE_PERIOD),
        "progress_deadline": PULLING + size.startup,
        "cpus": str(size.cpus),
        "memory": size.memory,
        "memory_limit": size.memory_limit,
        "shm": size.shm,
        "disk": size.disk,
        "devices": size.devices if size.resource == DEVICES and not claimed else None,
        "cores": size.devices if size.resource == CORES and not claimed else None,
        "efa": None if claimed else work.efa or None,
        "claimed": size.whole_devices if claimed else None,
        "claimed_efa": work.efa if claimed else 0,
        "aligned": ["neurons", "efas"] if work.efa else ["neurons"],
        "device_group": size.device_group,
        "lnc": size.lnc,
        "node_class": work.node_class,
        "node_pool": _node_pool(work),
        "static_nodes": ceil((scaling.maximum if scaling else work.replicas) * nodes / pods_of_node)
        if claimed
        else None,
        "storage_class": work.storage_class,
        "store": SHARED_STORE,
        "replicas": None if scaling else work.replicas,
        "surge": 0 if claimed and work.node_class else 1,  # a fixed number of nodes has no room for one more pod
        "unavailable": 1 if claimed and work.node_class else 0,
        "several": work.fewest > 1,
        "scaled": scaling is not None,
        "by_adapter": scaling is not None and not work.prometheus,
        "by_keda": scaling is not None and bool(work.prometheus),
        "prometheus": work.prometheus,
        "query": _query(work, f"{work.name}-[a-z0-9]+-[a-z0-9]{{5}}"),
        "minimum": work.fewest,
        "maximum": scaling.maximum if scaling else work.fewest,
        "concurrency": f"{scaling.concurrency:g}" if scaling else None,
        "concurrency_milli": round(scaling.concurrency * 1000) if scaling else None,
        "gateway": gateway,
        "gateway_namespace": gateway_namespace or None,
        "picker_labels": {"app.kubernetes.io/name": f"{work.name}-picker"},
    }


def _labels(work: Workload) -> dict[str, str]:
    return {"app.kubernetes.io/name": work.name, "app.kubernetes.io/part-of": "neuron-endpoint"}


def _scrape(port: int) -> dict[str, str]:
    """The annotations that a Prometheus with the usual configuration reads."""
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(port)}


def _query(work: Workload, pods: str) -> str:
    """PromQL for the requests in flight of this workload, not of one whose name begins the same.

    :param pods: a pattern of the workload's pods. Prometheus matches it against the whole name.
    """
    namespace = f',namespace="{work.namespace}"' if work.namespace else ""
    return f'sum(endpoint_requests_in_flight{{pod=~"{pods}"{namespace}}})'


def _environment(work: Workload) -> list[Members]:
    variables = {
        # The user has no home directory. Libraries write their files to the scratch volume instead.
        "HOME": "/tmp",  # noqa: S108
        "ENDPOINT_DRAIN": f"{work.drain:g}",
        **work.plain,
    }
    if work.settings:
        variables["ENDPOINT_CONFIG"] = f"{SETTINGS}/{work.document}"
    if work.storage_class:
        variables["ENDPOINT_ARTIFACT_STORE"] = f"file://{SHARED_STORE}"
    if work.instance is not None:
        variables["ENDPOINT_INSTANCE"] = work.instance.name
    own_address: list[Members] = []
    if work.transfers and NIXL_HOST not in variables:  # vLLM's default is localhost, and the other side connects to it
        own_address = [{"name": NIXL_HOST, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    secrets = [{"name": name, "valueFrom": {"secretKeyRef": {"name": work.name, "key": name}}} for name in work.secrets]
    # Kubernetes puts the value of a variable A in place of $(A), and one dollar in place of two.
    plain = [{"name": name, "value": value.replace("$", "$$")} for name, value in sorted(variables.items())]
    return [*plain, *own_address, *secrets]


def _node_pool(work: Workload) -> str:
    """The name of the NodePool: of all namespaces, no two workloads' are the same. It becomes the value of a label."""
    name = f"{work.namespace}.{work.name}" if work.namespace else work.name
    return name if len(name) <= LABEL else f"{name[: LABEL - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
