"""`PlanDraft`: the unfinished plan that a line writes into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.host_cpu import HostCpu
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.plan_request import PlanRequest


@dataclass(slots=True)
class PlanDraft:
    """An unfinished plan. A line completes the request and writes its spelling into it.

    :param cpu: this machine's CPU, if the plan is for this machine.
    :param args: vLLM's engine arguments.
    :param override: the NeuronConfig keys that the plan sets, as the line names them.
    :param env: environment variables that the line reads.
    """

    request: PlanRequest
    facts: ModelFacts | None = None
    instance: InstanceType | None = None
    line: str = ""
    cpu: HostCpu | None = None
    args: dict[str, Json] = field(default_factory=dict)
    override: dict[str, Json] = field(default_factory=dict)
    additional: dict[str, Json] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def config(self) -> EndpointConfig:
        return self.request.config

    @property
    def raw(self) -> Mapping[str, Json]:
        return self.request.raw

    def error(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.ERROR, setting, why, fix))

    def warn(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.WARNING, setting, why, fix))

    def inform(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.INFO, setting, why, fix))

    def complete(self, name: str, value: Json, why: str) -> None:
        """Sets a value that the line needs and the user did not give. An INFO finding reports it."""
        self.args[name] = value
        self.inform("completed", name, f"{why}; the plan sets {name} to {value}", f"Set {name} to choose yourself.")

    def number(self, name: str) -> int | None:
        """An engine argument that is a whole number."""
        value = self.args.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def plan(self) -> EnginePlan:
        return EnginePlan(self.line, dict(self.args), dict(self.env))
