"""The request for manifests. It is validated when it is created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.config.secret_values import is_secret
from handler.errors import SettingError
from handler.neuron.hardware.instance_catalogue import InstanceType
from model_packaging.deployment.definition.request import ScalingRequest
from model_packaging.kubernetes.pod_size import PodSize

# A DNS label (RFC 1123), as for names of Services. 45 characters leave room for our suffixes and those of ReplicaSets.
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,43}[a-z0-9])?")
NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One model on a cluster.

    :param image: of this project, with its registry.
    :param model: where the container fetches the model: s3:// or a hub id.
    :param environment: the container's variables. Secret variables are read from the Secret `<name>`.
    :param settings: the endpoint's settings as a document. None: the variables and the model's `endpoint.yaml`.
    :param document: the name of this document in the pod. Its ending says the format.
    :param drain: seconds in which requests may end after SIGTERM (ENDPOINT_DRAIN).
    :param role: ARN of an IAM role for the service account (IRSA). None: the cluster's Pod Identity.
    :param instance: None for the CPU engine.
    :param prometheus: URL of the Prometheus that KEDA reads. None: the autoscaler asks the cluster's metrics adapter.
    :param dra: devices and EFA interfaces by a ResourceClaimTemplate, instead of the device plugins' resources.
    :param efa: EFA interfaces of each pod.
    :param gateway: `name` or `namespace/name` of the Gateway that routes to the pods by an InferencePool.
    :param node_class: Karpenter's EC2NodeClass, for a NodePool of the instance type.
    :param storage_class: of a volume for the artifact store that all pods share.
    :param transfers: its KV connector exchanges the cache with other pods.
    """

    name: str
    image: str
    size: PodSize
    model: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: str | None = None
    document: str = "endpoint.yaml"
    instance: InstanceType | None = None
    namespace: str | None = None
    replicas: int = 1
    scaling: ScalingRequest | None = None
    prometheus: str | None = None
    drain: float = 25.0
    role: str | None = None
    dra: bool = False
    efa: int = 0
    gateway: str | None = None
    node_class: str | None = None
    storage_class: str | None = None
    transfers: bool = False

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            fix = "Use up to 45 small letters, digits and hyphens, with a letter first."
            raise SettingError("NAME", f"'{self.name[:60]}' is no name in Kubernetes", fix)
        if self.namespace is not None and not NAMESPACE.fullmatch(self.namespace):
            problem, fix = f"'{self.namespace[:60]}' is no namespace", "Use up to 63 small letters, digits and hyphens."
            raise SettingError("--namespace", problem, fix)
        if self.scaling is not None and not 1 <= self.scaling.minimum <= self.scaling.maximum:
            problem = f"{self.scaling.minimum} to {self.scaling.maximum} is no range of replicas"
            raise SettingError("--min", problem, "Give 1 <= --min <= --max.")
        if self.scaling is not None and self.replicas > self.scaling.maximum:
            problem = f"{self.replicas} is not within --min {self.scaling.minimum} and --max {self.scaling.maximum}"
            raise SettingError("--replicas", problem, "Leave it out: scaling starts with --min.")
        if self.scaling is not None and self.scaling.concurrency <= 0:
            raise SettingError("--concurrency", "it must be above 0", "Half of max_num_seqs is a good start.")
        if self.gateway is not None and not re.fullmatch(r"([^/]+/)?[^/]+", self.gateway):
            raise SettingError("--gateway", f"'{self.gateway[:80]}' is no Gateway", "Write NAME or NAMESPACE/NAME.")
        for setting, value in (("--dra", self.dra), ("--efa", self.efa), ("--karpenter", self.node_class)):
            if value and self.instance is None:
                raise SettingError(setting, "the CPU engine has no Neuron devices", "Give --instance.")
        if self.dra and self.instance is not None and self.instance.platform == "inf2":
            problem = "the Neuron DRA driver has Trainium's devices only"
            raise SettingError("--dra", problem, "Leave --dra out on Inferentia: the device plugin has its devices.")
        if self.dra and self.efa > self.size.device_group:
            problem = f"{self.efa} interfaces are not beside one group of {self.size.device_group} connected devices"
            raise SettingError("--efa", problem, f"Give at most {self.size.device_group}, or leave --dra out.")

    @property
    def fewest(self) -> int:
        return self.scaling.minimum if self.scaling else self.replicas

    @property
    def plain(self) -> dict[str, str]:
        """The variables that are not secret. They are written into the manifest."""
        return {name: value for name, value in sorted(self.environment.items()) if name not in self.secrets}

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(name for name, value in sorted(self.environment.items()) if value and is_secret(name, value))
