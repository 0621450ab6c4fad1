"""The request for a deployment. It is validated when it is created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from handler.config.tracing_settings import unreachable
from handler.errors import SettingError
from model_packaging.deployment.definition.limits import InstanceLimits
from model_packaging.deployment.definition.routing import Routing

# CreateEndpoint's pattern is 63 letters, digits and hyphens; the resources' own names add a digest to it.
NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,47}")
MOST_CONCURRENT = 1000  # MaxConcurrentInvocationsPerInstance in the API reference
# The container's environment, as CreateModel takes it (API reference, ContainerDefinition).
MOST_VARIABLES, LONGEST_VALUE, LARGEST_ENVIRONMENT = 100, 1024, 32 * 1024
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class ScalingRequest:
    """The scaling of an endpoint.

    :param minimum: may be 0 only with an inference component.
    :param concurrency: the target of requests in flight per copy.
    """

    minimum: int
    maximum: int
    concurrency: float


@dataclass(frozen=True, slots=True)
class Network:
    """Subnets and security groups of a VPC. Without subnets, SageMaker's own network is used."""

    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    isolation: bool = False

    def members(self) -> dict[str, Any]:
        """Returns the parameters of CreateModel, CreateEndpointConfig and CreateTrainingJob."""
        subnets, groups = list(self.subnets), list(self.security_groups)
        vpc: dict[str, Any] = {"VpcConfig": {"Subnets": subnets, "SecurityGroupIds": groups}} if subnets else {}
        return {**vpc, "EnableNetworkIsolation": True} if self.isolation else vpc


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """The request for one endpoint.

    :param model: the package: `s3://bucket/prefix/`, or a `.tar.gz` there. None if the environment names the model.
    :param instance: for example `ml.trn2.48xlarge`.
    :param instances: the initial number.
    :param ami: SageMaker's name of the host image, which determines the Neuron driver. None is SageMaker's default.
    :param component: deploy the model as an inference component, whose copies are placed and scaled separately.
    :param async_output: make the endpoint asynchronous, with its output below this S3 URI.
    :param async_concurrency: most requests that SageMaker sends to an instance of it at once. None: SageMaker chooses.
    :param kms_key: encrypts the instances' EBS volumes. It "does not encrypt instance local storage" (API reference,
        CreateEndpointConfig), which the hardware of Trn1 and Trn2 encrypts.
    :param alarm_topic: an SNS topic for the alarms. Alarms are created without one, too.
    """

    name: str
    image: str
    role: str
    instance: str
    limits: InstanceLimits
    model: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    instances: int = 1
    ami: str | None = None
    component: bool = False
    scaling: ScalingRequest | None = None
    routing: Routing = field(default_factory=Routing)
    network: Network = field(default_factory=Network)
    async_output: str | None = None
    async_concurrency: int | None = None
    kms_key: str | None = None
    alarm_topic: str | None = None
    alarms: bool = True
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SettingError(
                "NAME", f"'{self.name[:80]}' is not a valid name", "Use up to 48 letters, digits and hyphens."
            )
        for refused in environment_problems(self.environment):
            raise refused
        if self.async_concurrency is not None and not 1 <= self.async_concurrency <= MOST_CONCURRENT:
            problem = f"SageMaker takes 1 to {MOST_CONCURRENT} requests at once, not {self.async_concurrency}"
            raise SettingError("--async-concurrency", problem, "Give the plan's max_num_seqs.")
        if self.network.isolation and (self.model is None or _reads_elsewhere(self.environment)):
            problem = "an isolated network reaches neither S3 nor the hub, and the settings name something there"
            raise SettingError("--isolated", problem, "Put model and graphs into the package.")
        if self.network.isolation and (exporter := unreachable(self.environment)):
            fix = "Leave it out, or send the traces to localhost."
            raise SettingError(exporter, "an isolated network reaches no collector of traces", fix)
        if bool(self.network.subnets) != bool(self.network.security_groups):
            raise SettingError("--subnet", "subnets and security groups go together", "Give both, or neither.")
        if self.scaling is not None:
            _check_scaling(self.scaling, self.component or bool(self.async_output))
            if self.instances > self.scaling.maximum:
                problem = (
                    f"{self.instances} is not within --min {self.scaling.minimum} and --max {self.scaling.maximum}"
                )
                raise SettingError("--instances", problem, "Leave it out: scaling starts with --min.")
        if self.alarm_topic and not self.alarms:
            raise SettingError("--alarm-topic", "no alarms are created (--no-alarms)", "Leave one of them out.")
        if self.async_output is not None and not self.async_output.startswith("s3://"):
            raise SettingError("--async-output", f"'{self.async_output}' is not in S3", "Write s3://bucket/prefix/.")
        if self.component and self.async_output:
            raise SettingError(
                "--async-output", "an inference component cannot be asynchronous", "Leave one of them out."
            )


def environment_problems(environment: Mapping[str, str]) -> Iterator[SettingError]:
    """What CreateModel would refuse of a container's environment."""
    fix = "Put the settings into a document: `push --config`, or ENDPOINT_CONFIG=s3://..."
    if len(environment) > MOST_VARIABLES:
        yield SettingError("--env-file", f"SageMaker takes {MOST_VARIABLES} variables, not {len(environment)}", fix)
    for name, value in environment.items():
        if not VARIABLE.fullmatch(name):
            yield SettingError(name[:100], "SageMaker takes no variable of this name", "Give letters, digits and _.")
        if len(value.encode()) > LONGEST_VALUE:
            yield SettingError(name, f"SageMaker takes {LONGEST_VALUE} bytes a value, not {len(value.encode())}", fix)
    whole = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if whole > LARGEST_ENVIRONMENT:
        yield SettingError("--env-file", f"SageMaker takes {LARGEST_ENVIRONMENT} bytes in all, not {whole}", fix)


def _reads_elsewhere(environment: Mapping[str, str]) -> bool:
    return any("s3://" in value for value in environment.values())


def _check_scaling(scaling: ScalingRequest, to_zero: bool) -> None:
    if not 0 <= scaling.minimum <= scaling.maximum or scaling.maximum < 1:
        problem = f"{scaling.minimum} to {scaling.maximum} is no range"
        raise SettingError("--min", problem, "Give 0 <= --min <= --max, with --max at least 1.")
    if scaling.minimum == 0 and not to_zero:
        problem = "an endpoint without inference components has at least one instance"
        raise SettingError("--min", problem, "Give --component, or --min 1.")
    if scaling.concurrency <= 0:
        raise SettingError("--concurrency", "it must be above 0", "Half of max_num_seqs is a good start.")
