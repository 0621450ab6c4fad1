"""The pod: one container as SageMaker would start it, with probes on /ping and times from the plan."""

from __future__ import annotations

from math import ceil
from typing import Any

from model_packaging.kubernetes.workload import PORT, Workload

Members = dict[str, Any]
# Until every proxy of the cluster has heard that the pod takes no more; then SIGTERM.
DEREGISTRATION = 5
# The engine's end after the last request: SageMaker gives 5 s for it (30 in all), a cluster can give more.
ENDING = 15
PERIOD = 10
USER = 1000
SETTINGS_DIRECTORY, SETTINGS_FILE = "/etc/neuron-endpoint", "endpoint.yaml"


def pod_spec(work: Workload, container: str = "endpoint") -> Members:
    """A PodSpec, of which the manifests differ in what is around it only.

    :param container: its name; KServe asks for `kserve-container`.
    """
    size = work.size
    spec: Members = {
        "serviceAccountName": work.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": DEREGISTRATION + ceil(work.drain) + ENDING,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(work, container)],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": f"{size.disk}G"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{size.shm}Gi"}},
        ],
    }
    if work.settings is not None:
        spec["volumes"].append({"name": "settings", "configMap": {"name": work.name}})
    if work.instance is not None:
        spec["nodeSelector"] = {"node.kubernetes.io/instance-type": work.instance.name}
        spec["tolerations"] = [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def _container(work: Workload, name: str) -> Members:
    size = work.size
    requests: Members = {"cpu": str(size.cpus), "memory": f"{size.memory}Gi", "ephemeral-storage": f"{size.disk}G"}
    limits: Members = {"memory": f"{size.memory_limit}Gi"}
    if size.devices:
        requests[size.resource] = limits[size.resource] = size.devices
    mounts: list[Members] = [
        {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if work.settings is not None:
        mounts.append({"name": "settings", "mountPath": SETTINGS_DIRECTORY, "readOnly": True})
    return {
        "name": name,
        "image": work.image,
        "args": ["serve"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": _environment(work),
        "resources": {"requests": requests, "limits": limits},
        # Nothing else is asked of the pod before /ping has said 200 once: until then it has its whole start's time.
        "startupProbe": _probe(failures=ceil(size.startup / PERIOD)),
        "readinessProbe": _probe(failures=1, period=5),
        # An engine that died is started anew by the container itself, which takes as long as a start. Only what does
        # not recover within that time, broken devices among them, is ended from outside.
        "livenessProbe": _probe(failures=ceil(size.startup / PERIOD)),
        "lifecycle": {"preStop": {"sleep": {"seconds": DEREGISTRATION}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _probe(failures: int, period: int = PERIOD) -> Members:
    """/ping answers from its own thread within milliseconds; 2 s is what SageMaker gives it."""
    return {
        "httpGet": {"path": "/ping", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _environment(work: Workload) -> list[Members]:
    given: Members = {
        # A user without a home: what libraries keep there goes where there is room.
        "HOME": "/tmp",  # noqa: S108
        "ENDPOINT_DRAIN": f"{work.drain:g}",
        "ENDPOINT_LOG_FORMAT": "json",
        **work.plain,
    }
    if work.settings is not None:
        given["ENDPOINT_CONFIG"] = f"{SETTINGS_DIRECTORY}/{SETTINGS_FILE}"
    if work.instance is not None:
        given.setdefault("ENDPOINT_INSTANCE", work.instance.name)
    secrets = [{"name": name, "valueFrom": {"secretKeyRef": {"name": work.name, "key": name}}} for name in work.secrets]
    return [{"name": name, "value": value} for name, value in sorted(given.items())] + secrets
