"""Warns of a plan whose line Neuron will no longer support on the instance.

Source: AWS Neuron documentation, announcement of 16 October 2026: SDK 2.34 ends the support of NxD Inference on Trn2
and Trn3. Inf2 and Trn1 stay on it.
"""

from __future__ import annotations

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.line_registry import find_line
from handler.neuron.lines.native.native_lines import NATIVE_029


def support_end(config: EndpointConfig, plan: EnginePlan | None, instance: InstanceType | None) -> tuple[Finding, ...]:
    """A warning for NxD Inference on a platform that moves to the native plugin; nothing for any other plan."""
    line = find_line(plan.line) if plan else None
    if line is None or line.keys is not ConfigKeys.NXDI or instance is None:
        return ()
    if instance.platform not in NATIVE_029.platforms:
        return ()
    why = (
        f"{line.name} stands on NxD Inference, whose support on {instance.platform} ends with Neuron SDK 2.34 "
        "(announced on 16 October 2026)"
    )
    fix = f"Plan the move to {NATIVE_029.name}: `neuron-endpoint migrate` translates the settings."
    setting = config.source("line").name or config.source("instance").name or "line"
    return (Finding("line-support-ends", Severity.WARNING, setting, why, fix),)
