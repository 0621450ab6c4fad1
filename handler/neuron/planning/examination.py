"""Examines a configuration: findings, a plan and a memory estimate. `check` prints them; `serve` starts with them.

It reads the model's JSON files and headers. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from handler.config.config_findings import config_findings
from handler.config.config_rows import secrets
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import nxd_key
from handler.config.finding import Finding, Severity
from handler.config.problems import each
from handler.config.secret_values import mask
from handler.errors import EndpointError, SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.file_findings import not_checked
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.neuron_config.real_class import NeuronConfigBuilder, construct
from handler.neuron.planning.vllm_versions import InstalledVllm

# Fields that a plan chooses if they are not set, and that decide how much memory is needed.
CHOSEN = ("dtype", "tensor_parallel_size", "max_model_len", "max_num_seqs")
ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of an examination.

    :param memory: the estimate as JSON; None if the model's shape or the instance is not known.
    :param vllm: the vLLM that is installed here, whatever the plan is for; None if there is none.
    :param config: the configuration with what the plan chose, if there is a plan.
    :param facts, instance: the model's shape and the instance, if they are known.
    :param line: what was planned, also if there is no plan.
    """

    findings: tuple[Finding, ...]
    plan: EnginePlan | None = None
    memory: dict[str, Json] | None = None
    vllm: InstalledVllm | None = None
    config: EndpointConfig | None = None
    facts: ModelFacts | None = None
    instance: InstanceType | None = None
    line: str | None = None

    @property
    def failed(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def document(self) -> dict[str, Json]:
        findings: list[Json] = [{**finding.document()} for finding in self.findings]
        return {"findings": findings, "memory": self.memory, "vllm": asdict(self.vllm) if self.vllm else None}


def examine_config(
    config: EndpointConfig, environ: Mapping[str, str] | None = None, *, build: NeuronConfigBuilder | None = construct
) -> Examination:
    """Makes a plan and an estimate. Every problem is a finding. Secrets are masked. `build` is as in `make_plan`.

    :param environ: the container's environment, of which vLLM reads its own variables.
    """
    from handler.neuron.planning.start_needs import refused_settings

    known = secrets(config)
    try:
        examination = _examined(config, build) if config.engine != "none" else _without_engine(config)
    except SettingError as error:
        examination = rejected_settings(error)
    refused = (_invalid(error) for error in refused_settings(config, examination.plan, environ or {}))
    findings = by_severity((*config_findings(config), *examination.findings, *refused))
    return replace(examination, findings=tuple(masked(finding, known) for finding in findings))


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))


def rejected_settings(error: SettingError) -> Examination:
    """The examination of settings that cannot be read: findings only."""
    return Examination(tuple(_invalid(problem) for problem in each(error)))


def _without_engine(config: EndpointConfig) -> Examination:
    """The model's own code answers, and nothing is planned (handler/startup/start.py)."""
    name = config.source("engine").name or "engine"
    return Examination((not_checked(name, "the model's own code, which answers without an engine"),))


def _examined(config: EndpointConfig, build: NeuronConfigBuilder | None) -> Examination:
    """Reads the facts, finds the instance, makes the plan and the estimate.

    :raises SettingError: the instance, the line or the model is invalid.
    """
    from handler.neuron.hardware.current_machine import host_cpu, this_machine
    from handler.neuron.hardware.installed_packages import installed_versions
    from handler.neuron.lines.line_registry import find_line, installed_line
    from handler.neuron.planning.adapter_findings import adapter_findings
    from handler.neuron.planning.planner import facts_read, make_plan
    from handler.neuron.planning.platform_findings import platform_findings
    from handler.neuron.planning.start_needs import start_needs

    instance = this_machine(config)
    facts, findings = _facts(config.model)
    draft, draft_found = _draft(config)
    installed = installed_versions()
    cpu = None if config.instance else host_cpu()  # a plan for a named instance is for another machine
    outcome = make_plan(config, facts, instance, draft_model=draft, installed=installed, cpu=cpu, build=build)
    planned = completed(config, outcome.plan)
    facts = facts_read(facts, config, find_line(outcome.plan.line) if outcome.plan else None)
    # Without a plan there are no lengths, and an estimate would be of the model's longest.
    memory, memory_found = _memory(planned, facts if outcome.plan else None, draft, instance)
    vllm = InstalledVllm.of(installed)
    unseen = vllm.findings() if vllm and outcome.plan and outcome.plan.line == installed_line(installed) else ()
    nxd = outcome.plan is not None and outcome.plan.line.startswith("nxdi")
    listed = adapter_findings(config) if nxd else ()
    platform = platform_findings(config, outcome.plan, instance, installed)
    missing = start_needs(config, outcome.plan, facts, installed)
    all_findings = (*findings, *draft_found, *unseen, *platform, *missing, *outcome.findings, *listed, *memory_found)
    return Examination(all_findings, outcome.plan, memory, vllm, planned, facts, instance, outcome.line)


def _facts(model: str) -> tuple[ModelFacts | None, tuple[Finding, ...]]:
    from handler.neuron.checkpoint.checkpoint_reader import read_facts

    try:
        facts = read_facts(model)
    except SettingError as error:
        return None, tuple(_invalid(problem) for problem in each(error))
    except EndpointError as error:
        return None, (Finding("model-unreadable", Severity.ERROR, "MODEL", error.message, "Nothing of it was read."),)
    if facts is not None:
        return facts, ()
    why = f"{model} is not on this machine, so checks that need its shape, such as memory, were not made"
    return None, (
        Finding("model-not-read", Severity.INFO, "MODEL", why, "Give the model's directory or s3:// prefix."),
    )


def _draft(config: EndpointConfig) -> tuple[ModelFacts | None, tuple[Finding, ...]]:
    """The draft model, which vLLM reads before the plugin does (vLLM 0.16, config/speculative.py:721 for the size).

    A draft that is missing is an error only if the plan is for this machine.
    """
    if not config.speculative_model:
        return None, ()
    setting = config.setting("speculative_model")
    severity = Severity.ERROR if config.instance is None else Severity.WARNING
    draft, problems = _facts(config.speculative_model)
    errors = (problem for problem in problems if problem.severity is Severity.ERROR)
    return draft, tuple(replace(error, setting=setting, severity=severity) for error in errors)


def completed(config: EndpointConfig, plan: EnginePlan | None) -> EndpointConfig:
    """The configuration with the values that the plan chose, so that the estimate is of what would run."""
    if plan is None:
        return config
    chosen: dict[str, Any] = {name: plan.engine_args[name] for name in CHOSEN if name in plan.engine_args}
    chosen["line"] = plan.line
    return replace(config, **{name: value for name, value in chosen.items() if getattr(config, name) is None})


def _memory(
    config: EndpointConfig, facts: ModelFacts | None, draft: ModelFacts | None, instance: InstanceType | None
) -> tuple[dict[str, Json] | None, tuple[Finding, ...]]:
    from handler.neuron.memory.memory_estimate import estimate
    from handler.neuron.memory.memory_findings import memory_findings

    if facts is None or instance is None:
        return None, ()
    memory = estimate(facts, config, instance, draft=draft)
    if memory is None:
        return None, ()
    return memory.document(), memory_findings(memory, facts, draft, partial(_named, config))


def _named(config: EndpointConfig, field: str) -> str:
    """The name by which the user set a field that a NeuronConfig key repeats, or that key."""
    key = nxd_key(field)
    return (
        config.raw_key(key) if getattr(config, field) is None and key in config.neuron_config else config.setting(field)
    )


def _invalid(error: SettingError) -> Finding:
    return Finding("invalid-setting", Severity.ERROR, error.setting, error.problem, error.fix)


def masked(finding: Finding, known: tuple[str, ...]) -> Finding:
    setting, why, fix = (mask(text, known) for text in (finding.setting, finding.why, finding.fix))
    return Finding(finding.code, finding.severity, setting, why, fix)
