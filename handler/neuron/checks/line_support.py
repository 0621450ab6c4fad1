"""Rejects features, engine arguments and argument values that the line, or its version of vLLM, does not have."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.config.vllm_argument_table import known, versions
from handler.config.vllm_verdicts import EXPERTS, rejections
from handler.json_value import Json
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.feature import Feature, requested_features
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.line_registry import lines_with
from handler.neuron.lines.nxdi import SCHEDULER, chunks

REASONS = {
    # Plugin 0.5.0, platform.py:352. NxDI 0.10, models/model_base.py:3055.
    (Feature.CHUNKED_PREFILL, "nxdi-0.16"): (
        f"the plugin's scheduler silently switches it off, and with {SCHEDULER}=1 NxD Inference does not implement it"
    ),
    (Feature.DRAFT_MODEL, "nxdi-0.13"): "vLLM 0.13 does not have the method",
    (Feature.LORA, "nxdi-0.13"): "it is confirmed for plugin 0.5 and later only",
    (Feature.UNFUSED_SPECULATION, "nxdi-0.16"): "the plugin always fuses draft and target",
    (Feature.UNFUSED_SPECULATION, "nxdi-0.13"): "the plugin always fuses draft and target",
}


def unsupported(context: CheckContext) -> Iterator[Finding]:
    """Yields an error for each setting that needs a feature which the line does not have."""
    for request in requested_features(context.config):
        if not context.line.has(request.feature):
            yield rejection(context, request.feature, context.setting(request.field))
    chunks_raw = context.plugin and chunks(context.draft) and not context.config.enable_chunked_prefill
    if chunks_raw and not context.line.has(Feature.CHUNKED_PREFILL):
        setting = SCHEDULER if SCHEDULER in context.config.neuron_env else context.key("chunked_prefill_config")
        yield rejection(context, Feature.CHUNKED_PREFILL, setting)
    transfers = context.nxd and "kv_transfer_config" in context.config.engine_args
    if transfers and not context.line.has(Feature.DISAGGREGATION):
        yield rejection(context, Feature.DISAGGREGATION, context.setting("kv_transfer_config"))
    if context.draft.raw and context.line.keys is ConfigKeys.NONE:
        yield rejection(context, Feature.RAW, context.key(next(iter(context.draft.raw))))


def rejection(context: CheckContext, feature: Feature, setting: str) -> Finding:
    line = context.line.name
    reason = REASONS.get((feature, context.line.name))
    why = f"{line} does not have {feature.value}{f': {reason}' if reason else ''}"
    others = [
        title for title in lines_with(feature, context.instance.platform if context.instance else None) if title != line
    ]
    fix = (
        f"Remove it, or set ENDPOINT_LINE to a line that has it: {', '.join(others)}."
        if others
        else "Remove it: no line has it."
    )
    return error("unsupported-by-line", setting, why, fix)


def argument_of_another_version(context: CheckContext) -> Iterator[Finding]:
    """Arguments must be of the line's version if the user gave them: those that the plan writes are the line's own."""
    version = context.vllm
    if version not in versions():
        return
    for name, value in context.draft.args.items():
        argument = known().get(name)
        if argument is None:
            continue
        vllm = f"vLLM {version} ({context.line.name})"
        if version not in argument.versions and name in context.config.engine_args:
            why = f"{vllm} has no argument {name}; these versions have it: {', '.join(argument.versions)}"
            yield error("argument-of-another-version", context.setting(name), why, "Remove it.")
            continue
        rejected = argument.rejected_value(value, version)
        if rejected is not None:
            fix = f"Give {', '.join(map(str, argument.by_version[version]))}."
            yield error(
                "value-of-another-version", context.setting(name), f"{vllm} does not accept {shown(rejected)}", fix
            )


def rejected_by_vllm(context: CheckContext) -> Iterator[Finding]:
    """What the line's vLLM itself rejects, by the table that `make test-arguments` has written."""
    facts, version = context.facts, context.vllm or ""
    arguments = {**context.draft.args, EXPERTS: facts is None or bool(facts.experts)}
    for rejection in rejections(version, "neuron" if context.line.platforms else "cpu", arguments):
        name, dot, key = rejection.name.partition(".")
        why = f"vLLM {version} does not accept {shown(rejection.value)}: {rejection.why}"
        needs = " or ".join(", ".join(need) for need in rejection.needs)
        near = difflib.get_close_matches(key.rpartition(".")[2], rejection.accepted, n=1)
        accepted = ", ".join(rejection.accepted[:12])
        fix = f"Did you mean {near[0]}?" if near else f"Use {accepted}, or remove it." if accepted else "Remove it."
        yield error(
            "rejected-by-vllm",
            f"{context.setting(name)}{dot}{key}",
            why,
            f"Remove it, or set {needs} with it." if needs else fix,
        )


def rejected_together(context: CheckContext) -> Iterator[Finding]:
    """What vLLM rejects of two values together, which no table of single arguments has (vllm/config, 0.16 to 0.29)."""
    name, draft = "decode_context_parallel_size", context.draft
    degree, ranks = draft.number(name) or 1, draft.number("tensor_parallel_size") or 1
    if degree > 1 and ranks % degree:
        why = f"{name} is {degree}: tensor_parallel_size ({ranks}) must be a multiple of it"
        yield error("decode-context-parallel", context.setting(name), why, "Remove it.")
    local, engines = draft.number("data_parallel_size_local"), draft.number("data_parallel_size") or 1
    if local is not None and local > max(1, engines):
        why = f"data_parallel_size_local ({local}) is more than data_parallel_size ({engines})"
        yield error("several-engines", context.setting("data_parallel_size_local"), why, "Remove it.")
    devices: Json = draft.args.get("device_ids")
    ids = [str(each).strip() for each in (devices if isinstance(devices, list) else str(devices or "0").split(","))]
    if len(set(ids)) < len(ids) or not all(each.removeprefix("-").isdecimal() for each in ids):
        why = f"{shown(devices)} is not a list of different numbers"
        yield error("device-ids", context.setting("device_ids"), why, "Give numbers, as in 0,1, or remove it.")
    reasoning: Json = draft.args.get("reasoning_config")
    parsed = isinstance(reasoning, dict) and (reasoning.get("reasoning_parser") or draft.args.get("reasoning_parser"))
    marks = ("reasoning_start_str", "reasoning_end_str")
    marked = parsed or not isinstance(reasoning, dict) or all(reasoning.get(mark) for mark in marks)
    if not marked and context.vllm == "0.24.0":  # vllm/config/reasoning.py: later versions do without
        why = "vLLM 0.24.0 needs a reasoning_parser, or both reasoning_start_str and reasoning_end_str"
        yield error("reasoning-marks", context.setting("reasoning_config"), why, "Give them, or remove it.")
    swap, host = draft.args.get("swap_space"), context.instance.host_gib if context.instance else math.inf
    if context.vllm == "0.16.0" and isinstance(swap, int | float) and swap * ranks > 0.7 * host:  # vllm/config/cache.py
        why = f"{swap:g} GiB for each of {ranks} ranks is more than 70 % of the host's {host} GiB"
        yield error("swap-space", context.setting("swap_space"), why, "Lower it, or remove it: Neuron does not swap.")
    name = "per_request_spec_decode_metrics"
    if draft.args.get(name) in ("summary", "detailed") and "speculative_config" not in draft.args:
        yield error("metrics-of-speculation", context.setting(name), "there is no speculative_config", "Remove it.")
    block = draft.number("mamba_block_size")
    if block is not None and (block < 1 or draft.args.get("enable_prefix_caching") is False):
        why = "it is a length of 1 token or more, and goes with prefix caching only"
        yield error("mamba-block", context.setting("mamba_block_size"), why, "Remove it.")
    architectures = context.facts.architectures if context.facts else ()
    text_only = bool(architectures) and all(each.endswith("ForCausalLM") for each in architectures)
    if draft.args.get("default_mm_loras") and text_only:
        why = f"{architectures[0][:60]} takes text only"
        yield error("adapters-of-media", context.setting("default_mm_loras"), why, "Remove it.")


LINE_SUPPORT: Final = (unsupported, argument_of_another_version, rejected_by_vllm, rejected_together)
