"""Rejects features, engine arguments and argument values that the line, or its version of vLLM, does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.config.vllm_argument_table import known, versions
from handler.config.vllm_verdicts import EXPERTS, rejections
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.line import ConfigKeys, Feature, requested_features
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
    for field, feature in requested_features(context.config):
        if not context.line.has(feature):
            yield rejection(context, feature, field)
    chunks_raw = context.plugin and chunks(context.draft) and not context.config.enable_chunked_prefill
    if chunks_raw and not context.line.has(Feature.CHUNKED_PREFILL):
        setting = SCHEDULER if SCHEDULER in context.config.neuron_env else context.key("chunked_prefill_config")
        yield rejection(context, Feature.CHUNKED_PREFILL, setting)
    transfers = context.nxd and "kv_transfer_config" in context.config.engine_args
    if transfers and not context.line.has(Feature.DISAGGREGATION):
        yield rejection(context, Feature.DISAGGREGATION, "kv_transfer_config")
    ranks_of_a_context = context.draft.number("decode_context_parallel_size") or 1
    if ranks_of_a_context > 1 and not context.line.has(Feature.CONTEXT_PARALLEL):  # vLLM counts blocks by it
        yield rejection(context, Feature.CONTEXT_PARALLEL, "decode_context_parallel_size")
    if context.draft.raw and context.line.keys is ConfigKeys.NONE:
        yield rejection(context, Feature.RAW, context.key(next(iter(context.draft.raw))))


def rejection(context: CheckContext, feature: Feature, setting: str) -> Finding:
    line = context.line.name
    reason = REASONS.get((feature, context.line.name))
    why = f"{line} does not have {feature.value}{f': {reason}' if reason else ''}"
    platform = context.instance.platform if context.instance else None
    others = [title for title in lines_with(feature, platform) if title != line]
    place = f" on {platform}" if any(title != line for title in lines_with(feature)) else ""
    fix = (
        f"Remove it, or set ENDPOINT_LINE to a line that has it: {', '.join(others)}."
        if others
        else f"Remove it: no line{place} has it."
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
            yield error("argument-of-another-version", name, why, "Remove it.")
            continue
        rejected = argument.rejected_value(value, version)
        if rejected is not None:
            fix = f"Give {', '.join(map(str, argument.by_version[version]))}."
            yield error("value-of-another-version", name, f"{vllm} does not accept {shown(rejected)}", fix)


def rejected_by_vllm(context: CheckContext) -> Iterator[Finding]:
    """What the line's vLLM itself rejects, by the table that `make test-arguments` has written."""
    facts, version = context.facts, context.vllm or ""
    arguments = {**context.draft.args, EXPERTS: facts is None or bool(facts.experts)}
    for rejection in rejections(version, "neuron" if context.line.platforms else "cpu", arguments):
        name, dot, key = rejection.name.partition(".")
        why = f"vLLM {version} does not accept {shown(rejection.value)}: {rejection.why}"
        alternatives = [
            ", ".join(f"{path} to {kind}" if kind[0] == '"' else path for path, kind in need.items())
            for need in rejection.needs
        ]
        needs = " or ".join(alternatives)
        written = (str(rejection.value), key.rpartition(".")[2])
        near = [match for text in written if text for match in difflib.get_close_matches(text, rejection.accepted, n=1)]
        accepted = ", ".join(rejection.accepted[:12])
        fix = f"Did you mean {near[0]}?" if near else f"Use {accepted}, or remove it." if accepted else "Remove it."
        fix = f"Remove it, or set {needs} with it." if needs else fix
        if rejection.value is None:  # a key that is not there
            why, fix = f"vLLM {version} starts only with it: {rejection.why}", f"Give it, or remove {name}."
        yield error("rejected-by-vllm", f"{context.setting(name)}{dot}{key}", why, fix)


LINE_SUPPORT: Final = (unsupported, argument_of_another_version, rejected_by_vllm)
