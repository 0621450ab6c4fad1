"""Findings about where a plan is to run: what SageMaker hosts, which support ends, and a plugin that is missing here.

Source of the end of support: AWS Neuron documentation, announcement of 16 October 2026: SDK 2.34 ends the support of
NxD Inference on Trn2 and Trn3. Inf2 and Trn1 stay on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import HOST_PREFIX, TRANSFORM, InstanceType
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.line_registry import find_line, installed_line
from handler.neuron.lines.native.native_lines import NATIVE_029

MULTI_MODEL = "SageMaker hosts multi-model endpoints on CPU and some GPU instances only, and on none with Neuron cores"
MULTI_MODEL_FIX = "Remove it, and use an inference component for each model (deploy --component)."


def platform_findings(
    config: EndpointConfig, plan: EnginePlan | None, instance: InstanceType | None, installed: Mapping[str, str]
) -> Iterator[Finding]:
    """What is to say of the instance and the line, beside the plan's own findings."""
    yield from _unhosted(config, instance)
    yield from _support_end(config, plan, instance)
    yield from _missing_plugin(config, plan, instance, installed)


def _unhosted(config: EndpointConfig, instance: InstanceType | None) -> Iterator[Finding]:
    """What SageMaker does not host on the configured instance.

    Sources: `instance_catalogue`; "Supported algorithms, frameworks, and instances for multi-model endpoints".
    """
    if not config.instance or instance is None:
        return
    if not instance.hosting:
        why = f"SageMaker hosts no endpoints on {instance.name}, so this plan is for EC2, EKS or HyperPod"
        fix = "For an endpoint, use ml.trn2.48xlarge."
        yield Finding("not-hosted", Severity.INFO, config.setting("instance"), why, fix)
    if not config.instance.startswith(HOST_PREFIX):
        return
    if config.multi_model:
        setting = config.setting("multi_model")
        yield Finding("multi-model-not-hosted", Severity.ERROR, setting, MULTI_MODEL, MULTI_MODEL_FIX)
    if config.batch_transform and instance.name not in TRANSFORM:
        why = f"SageMaker runs no batch transform on {instance.name}"
        fix = f"Use one of {', '.join(sorted(HOST_PREFIX + name for name in TRANSFORM))}."
        yield Finding("no-transform", Severity.ERROR, config.setting("batch_transform"), why, fix)


def _support_end(config: EndpointConfig, plan: EnginePlan | None, instance: InstanceType | None) -> Iterator[Finding]:
    """A warning for NxD Inference on a platform that moves to the native plugin; nothing for any other plan."""
    line = find_line(plan.line) if plan else None
    moves = instance is not None and instance.platform in NATIVE_029.platforms
    if line is None or line.keys is not ConfigKeys.NXDI or instance is None or not moves:
        return
    why = (
        f"{line.name} stands on NxD Inference, whose support on {instance.platform} ends with Neuron SDK 2.34 "
        "(announced on 16 October 2026)"
    )
    fix = f"Plan the move to {NATIVE_029.name}: `neuron-endpoint migrate` translates the settings."
    setting = config.source("line").name or config.source("instance").name or "line"
    yield Finding("line-support-ends", Severity.WARNING, setting, why, fix)


def _missing_plugin(
    config: EndpointConfig, plan: EnginePlan | None, instance: InstanceType | None, installed: Mapping[str, str]
) -> Iterator[Finding]:
    """This machine has Neuron cores, and vLLM without a plugin. With a configured instance, the plan is for another."""
    here = config.instance is None and instance is not None
    if plan is None or plan.line == CPU.name or not here or installed_line(installed) != CPU.name:
        return
    setting = config.source("line").name or "ENDPOINT_LINE"
    why = f"the plan is for {plan.line}, and vLLM is installed here without a Neuron plugin"
    fix = "Use an image with the plugin (docs/neuron-lines.md), set ENDPOINT_LINE to cpu, or set ENDPOINT_INSTANCE."
    yield Finding("plugin-missing", Severity.ERROR, setting, why, fix)
