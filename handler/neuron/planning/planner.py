"""Makes the engine plan of a configuration, or findings that tell why there is none.

Pure: it reads no file and no machine.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE, NXD_INFERENCE, TRANSFORMERS_NEURONX
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity, conflict
from handler.json_value import mapping
from handler.neuron.checkpoint.model_facts import ModelFacts, with_overrides
from handler.neuron.checks.check_context import CheckContext, effective, effective_vision
from handler.neuron.checks.check_list import CHECKS
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.hardware.current_machine import HostCpu
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.fork import FORK_091
from handler.neuron.lines.line import ConfigKeys, Line, requested_features
from handler.neuron.lines.line_registry import LINE_OF_FRAMEWORK, NAMES, find_line, installed_line, reads_overrides
from handler.neuron.lines.native.native_lines import NATIVE_029
from handler.neuron.lines.nxdi import NXDI_016
from handler.neuron.lines.plan_draft import PlanDraft, spell_rope
from handler.neuron.lines.speculation import complete_speculation
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.keys import KEYS, NATIVE_KEYS, NATIVE_SAMPLING_KEYS, PLUGIN, SAMPLING_KEYS, SWALLOWED
from handler.neuron.neuron_config.real_class import NeuronConfigBuilder
from handler.neuron.planning.vllm_versions import version_of

CHUNK: Final = "attention_chunk_size"


def make_plan(
    config: EndpointConfig,
    facts: ModelFacts | None,
    instance: InstanceType | None,
    *,
    line: str | None = None,
    draft_model: ModelFacts | None = None,
    installed: Mapping[str, str] | None = None,
    cpu: HostCpu | None = None,
    build: NeuronConfigBuilder | None = None,
) -> PlanOutcome:
    """The plan of one endpoint.

    :param facts: the facts of the model. Without them some checks are not made.
    :param instance: the instance that it runs on. Without one, cores are not checked and no degree is chosen.
    :param line: overrides the line of the configuration.
    :param draft_model: the facts of the draft model of a speculation.
    :param installed: package versions (`installed_versions()`), which decide the line, and must be those of an export.
    :param cpu: the CPU that it runs on. Without one, the CPU line leaves the data type to vLLM.
    :param build: builds NxD Inference's NeuronConfig from its keys and returns its error as a finding. None: not built.
    :returns: a plan and findings, or no plan and at least one error. Never raises.
    """
    name = line or config.line or default_line(config, instance, installed or {})
    resolved = resolve_line(name, config, installed or {})
    if resolved is None:
        near = difflib.get_close_matches(name[:40], NAMES, n=1, cutoff=0.5)
        fix = f"Did you mean '{near[0]}'?" if near else f"Use one of {', '.join(NAMES)}."
        why = f"'{name[:40]}' is not a line of vLLM and Neuron"
        unknown = Finding("unknown-line", Severity.ERROR, config.setting("line"), why, fix)
        return PlanOutcome(None, (unknown,))
    config, findings = complete_speculation(config, draft_model)
    if resolved.keys in (ConfigKeys.NXDI, ConfigKeys.TRANSFORMERS_NEURONX):
        config, sampled = _sampled_on_cpu(config)
        findings += sampled
    read = facts_read(facts, config, resolved)
    draft = PlanDraft(config, read, instance, resolved.name, cpu)
    resolved.spell(draft)
    spell_rope(draft, facts, overrides=reads_overrides(resolved))
    keys, vision = effective(draft), effective_vision(draft)
    version = version_of(resolved.name, installed or {})
    values = ConfigValues(keys, read.config if read else {})
    of_vision = ConfigValues(vision) if vision else None
    context = CheckContext(draft, resolved, values, version, of_vision, draft_model, installed or {})
    findings += draft.findings
    of_checks = (finding for check in CHECKS for finding in check(context))
    findings += [replace(finding, setting=config.setting(finding.setting)) for finding in of_checks]
    if build is not None and context.nxd and not any(finding.severity is Severity.ERROR for finding in findings):
        raised = build(keys)
        findings += [raised] if raised is not None else []
    unique = tuple(dict.fromkeys(findings))
    failed = any(finding.severity is Severity.ERROR for finding in unique)
    return PlanOutcome(None if failed else draft.plan(), unique, resolved.name)


def facts_read(facts: ModelFacts | None, config: EndpointConfig, line: Line | None) -> ModelFacts | None:
    """The facts by which a line builds the model.

    The fork's NxD Inference removes Llama 4's chunks from the text part, and caches whole sequences in every layer
    (SDK 2.25 and 2.26, models/image_to_text_model_base.py). Later ones keep them.
    """
    if facts is None:
        return None
    if line is FORK_091 and CHUNK in mapping(facts.config.get("text_config")):
        return with_overrides(facts, {"text_config": {CHUNK: None}})
    return with_overrides(facts, config.engine_args.get("hf_overrides")) if reads_overrides(line) else facts


def default_line(config: EndpointConfig, instance: InstanceType | None, installed: Mapping[str, str]) -> str:
    """The line if none is configured: the installed one, else that of the framework's variable, else by the instance.

    Trn2 and newer mean the newest native line, unless a setting is of NxD Inference. Inf2 and Trn1 mean the NxDI
    plugin, no instance the CPU line. If plain vLLM is installed and the instance is a Neuron one, a laptop is checking
    a deployment, and the instance decides.
    """
    line = installed_line(installed)
    if line is not None and line != CPU.name:
        return line
    named = LINE_OF_FRAMEWORK.get(config.neuron_env.get(FRAMEWORK_VARIABLE, ""))
    if named is not None:
        return named
    if instance is None:
        return CPU.name
    native = instance.platform in NATIVE_029.platforms and not _of_nxd_inference(config)
    return NATIVE_029.name if native else NXDI_016.name


def _of_nxd_inference(config: EndpointConfig) -> bool:
    """Whether a setting is one that NxD Inference has and the native plugin does not."""
    raw = config.neuron_config
    if FRAMEWORK_VARIABLE in config.neuron_env or config.compiled_artifacts is not None:
        return True
    if any("override" in config.raw_key(key).lower() for key in raw):
        return True
    nested = mapping(raw.get("on_device_sampling_config")).keys() & SAMPLING_KEYS.keys()
    own = (KEYS | PLUGIN).keys() - NATIVE_KEYS.keys()
    if raw.keys() & own or nested - NATIVE_SAMPLING_KEYS.keys() - set(SWALLOWED):
        return True
    features = {feature for _, feature in requested_features(config)}
    return bool(features & NXDI_016.features - NATIVE_029.features)


def _sampled_on_cpu(config: EndpointConfig) -> tuple[EndpointConfig, list[Finding]]:
    """NxD Inference and transformers-neuronx have grammars and log probabilities with sampling on the CPU only."""
    feature = next((name for name in ("structured_outputs", "logprobs") if getattr(config, name)), None)
    if feature is None or config.on_device_sampling is False:
        return config, []
    setting = config.setting(feature)
    if config.on_device_sampling:
        return config, [conflict(config.setting("on_device_sampling"), True, setting, True)]
    why = f"{feature} needs sampling on the CPU on this line, and the plan switches it on"
    completed = Finding("completed", Severity.INFO, setting, why, "Remove it for the speed of sampling on the device.")
    return replace(config, on_device_sampling=False), [completed]


def resolve_line(name: str, config: EndpointConfig, installed: Mapping[str, str]) -> Line | None:
    """The line of a name. Of the fork's two lines of a version, the framework decides: named, or the one installed."""
    framework = config.neuron_env.get(FRAMEWORK_VARIABLE, "")
    if not framework and TRANSFORMERS_NEURONX in installed and NXD_INFERENCE not in installed:
        framework = TRANSFORMERS_NEURONX
    return find_line(name, framework)
