"""Builds the pod: one container, started as by SageMaker, with probes on /ping and times from the plan."""

from __future__ import annotations

from math import ceil
from typing import Any

from model_packaging.kubernetes.workload import PORT, Workload

Members = dict[str, Any]
# Seconds until every proxy of the cluster knows that the pod accepts no more requests. Then SIGTERM follows.
DEREGISTRATION = 5
# Seconds for the engine to stop after the last request. SageMaker allows 5 s (30 in all); a cluster can allow more.
ENDING = 15
PERIOD = 10
USER = 1000
SETTINGS_DIRECTORY, SETTINGS_FILE = "/etc/neuron-endpoint", "endpoint.yaml"


def pod_spec(work: Workload, container: str = "endpoint") -> Members:
    """Returns the PodSpec, which is the same in all kinds of manifests.

    :param container: the container's name. KServe requires `kserve-container`.
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
        # The other probes begin after /ping has answered 200 once. Until then the pod has the time of a whole start.
        "startupProbe": _probe(failures=ceil(size.startup / PERIOD)),
        "readinessProbe": _probe(failures=1, period=5),
        # The container itself restarts an engine that died, which takes as long as a start. Kubernetes restarts the
        # pod only if it does not recover within that time, for example because of a broken device.
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
    """/ping answers from its own thread within milliseconds. SageMaker's limit for it is 2 s."""
    return {
        "httpGet": {"path": "/ping", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _environment(work: Workload) -> list[Members]:
    given: Members = {
        # The user has no home directory. Libraries write their files to the scratch volume instead.
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
