"""`EnginePlan`: the engine arguments and the environment that an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.config.finding import Finding, Severity
from handler.json_value import Json, mapping

# Has the native plugin compile on a host without devices, and the compiler's target, which it then needs.
CPU_COMPILE: Final = "VLLM_NEURON_CPU_COMPILE"
TARGET: Final = "NEURON_PLATFORM_TARGET_OVERRIDE"


def compiles_only(env: Mapping[str, str]) -> bool:
    """Whether these variables have an engine compile and run nothing."""
    return env.get(CPU_COMPILE, "").strip().lower() in ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Everything the engine is started with.

    :param line: the line's name, `nxdi-0.16`.
    :param engine_args: vLLM's engine arguments by their Python names (`max_num_seqs`), in this line's spelling.
    :param env: the environment that the line reads.
    """

    line: str
    engine_args: Mapping[str, Json]
    env: Mapping[str, str] = field(default_factory=dict)

    def section(self, name: str) -> Mapping[str, Json]:
        """A section of `additional_config`, or the fork's engine argument of that name; empty if there is none."""
        additional = self.engine_args.get("additional_config")
        return mapping((additional if isinstance(additional, dict) else self.engine_args).get(name))

    @property
    def nxd_keys(self) -> Mapping[str, Json]:
        """The NeuronConfig keys of NxD Inference: of a multimodal model, those of its text model."""
        return text_keys(self.section("override_neuron_config"))

    def document(self) -> dict[str, Json]:
        return {"line": self.line, "engine_args": dict(self.engine_args), "env": dict(self.env)}


def text_keys(override: Mapping[str, Json]) -> Mapping[str, Json]:
    """The NeuronConfig keys of a model: of a multimodal one, those of its text model."""
    text = override.get("text_neuron_config")
    return text if isinstance(text, dict) else override


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """A plan and its findings. `plan` is None exactly if a finding is an error.

    :param line: the line that was planned for, also without a plan; None if there is no such line.
    """

    plan: EnginePlan | None
    findings: tuple[Finding, ...] = ()
    line: str | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)
