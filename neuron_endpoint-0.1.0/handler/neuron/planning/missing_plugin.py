"""Finds that this machine has Neuron cores, and vLLM without a Neuron plugin: the plan would not start here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.line_registry import installed_line


def missing_plugin(
    config: EndpointConfig, plan: EnginePlan | None, instance: InstanceType | None, installed: Mapping[str, str]
) -> Iterator[Finding]:
    """An error if the plan is for this machine. With a configured instance it is for another one."""
    here = config.instance is None and instance is not None
    if plan is None or plan.line == CPU.name or not here or installed_line(installed) != CPU.name:
        return
    setting = config.source("line").name or "ENDPOINT_LINE"
    why = f"the plan is for {plan.line}, and vLLM is installed here without a Neuron plugin"
    fix = "Use an image with the plugin (docs/neuron-lines.md), set ENDPOINT_LINE to cpu, or set ENDPOINT_INSTANCE."
    yield Finding("plugin-missing", Severity.ERROR, setting, why, fix)
