"""From a configuration to a plan that is known to start, or to findings that say why there is none.

Pure: nothing is read, imported or asked of a machine, except NxD Inference's own NeuronConfig where it is installed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.checks.check_context import CheckContext, effective
from handler.neuron.checks.check_list import CHECKS
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.hardware.host_cpu import HostCpu
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.lines.line import Line
from handler.neuron.lines.line_registry import NAMES, find_line, installed_line
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.real_class import construct
from handler.neuron.planning.plan_request_reader import read_request
from handler.neuron.planning.vllm_versions import version_of

Judge = Callable[[Mapping[str, Json]], Finding | None]
FRAMEWORK = "VLLM_NEURON_FRAMEWORK"
# Where nothing is installed to go by, a framework's variable names a line.
LINE_OF_FRAMEWORK = {"transformers-neuronx": "fork-0.7.2", "optimum-neuron": "optimum"}


def make_plan(
    config: EndpointConfig,
    facts: ModelFacts | None,
    instance: InstanceType | None,
    *,
    line: str | None = None,
    installed: Mapping[str, str] | None = None,
    cpu: HostCpu | None = None,
    judge: Judge = construct,
) -> PlanOutcome:
    """The plan of one endpoint.

    :param facts: what the model says of itself; without them some checks cannot be made.
    :param instance: where it runs; without one, cores are not checked and no degree is chosen.
    :param line: overrides the configuration's own line.
    :param installed: package versions (`installed_versions()`), to choose the line by.
    :param cpu: the CPU that it runs on; without one, the CPU line leaves the data type to vLLM.
    :param judge: builds NxD Inference's NeuronConfig from its keys and tells what it raised.
    :returns: a plan with what was found on the way, or no plan and at least one error. Never raises.
    """
    request, findings = read_request(config)
    name = line or config.line or default_line(config, instance, installed or {})
    chosen = choose(name, config, installed or {})
    if chosen is None:
        near = difflib.get_close_matches(name[:40], NAMES, n=1, cutoff=0.5)
        fix = f"Did you mean '{near[0]}'?" if near else f"Use one of {', '.join(NAMES)}."
        why = f"'{name[:40]}' is no line of vLLM and Neuron"
        unknown = Finding("unknown-line", Severity.ERROR, request.setting("line"), why, fix)
        return PlanOutcome(None, (*findings, unknown))
    draft = PlanDraft(request, facts, instance, chosen.name, cpu)
    chosen.spell(draft)
    keys = effective(draft)
    version = version_of(chosen.name, installed or {})
    case = CheckContext(draft, chosen, ConfigValues(keys, facts.config if facts else {}), version)
    findings += draft.findings
    for check in CHECKS:
        findings += check(case)
    if case.nxd and not any(finding.severity is Severity.ERROR for finding in findings):
        verdict = judge(keys)
        findings += [verdict] if verdict is not None else []
    told = tuple(dict.fromkeys(findings))
    failed = any(finding.severity is Severity.ERROR for finding in told)
    return PlanOutcome(None if failed else draft.plan(), told)


def default_line(config: EndpointConfig, instance: InstanceType | None, installed: Mapping[str, str]) -> str:
    """What is installed; else what the framework's variable names; else the NxDI plugin on a Neuron instance, CPU
    anywhere else. Plain vLLM beside a Neuron instance is a laptop that checks a deployment: the instance decides."""
    found = installed_line(installed)
    if found is not None and found != "cpu":
        return found
    named = LINE_OF_FRAMEWORK.get(config.neuron_env.get(FRAMEWORK, ""))
    if found is None and named is not None:
        return named
    return "cpu" if instance is None else "nxdi-0.16"


def choose(name: str, config: EndpointConfig, installed: Mapping[str, str]) -> Line | None:
    """The line of a name; a fork has two, by the framework that is named or the only one installed."""
    framework = config.neuron_env.get(FRAMEWORK, "")
    if not framework and "transformers-neuronx" in installed and "neuronx-distributed-inference" not in installed:
        framework = "transformers-neuronx"
    return find_line(name, framework)
