"""Features that a line does not have: rejected with an error that names it, with the lines that have them."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.feature import Feature, asked
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.line_registry import lines_with
from handler.neuron.lines.nxdi import SCHEDULER, chunks

REASONS = {
    (Feature.CHUNKED_PREFILL, "nxdi-0.16"): "NxD Inference raises NotImplementedError for it there",
    (Feature.DRAFT_MODEL, "nxdi-0.13"): "vLLM 0.13 does not know the method",
    (Feature.LORA, "nxdi-0.13"): "it is confirmed from plugin 0.5 on only",
    (Feature.UNFUSED_SPECULATION, "nxdi-0.16"): "the plugin always fuses draft and target",
    (Feature.UNFUSED_SPECULATION, "nxdi-0.13"): "the plugin always fuses draft and target",
}


def unsupported(case: CheckContext) -> Iterator[Finding]:
    """One finding for each setting that asks for what the line does not have."""
    for ask in asked(case.config):
        if not case.line.has(ask.feature):
            yield refusal(case, ask.feature, case.setting(ask.field))
    spelled = case.plugin and chunks(case.draft) and not case.config.enable_chunked_prefill
    if spelled and not case.line.has(Feature.CHUNKED_PREFILL):
        setting = SCHEDULER if SCHEDULER in case.draft.request.env else case.key("chunked_prefill_config")
        yield refusal(case, Feature.CHUNKED_PREFILL, setting)
    if case.draft.raw and case.line.keys is ConfigKeys.NONE:
        yield refusal(case, Feature.RAW, case.setting("neuron_config"))


def refusal(case: CheckContext, feature: Feature, setting: str) -> Finding:
    line = case.line.title
    reason = REASONS.get((feature, case.line.name))
    why = f"{line} does not have {feature.value}{f': {reason}' if reason else ''}"
    others = [
        title for title in lines_with(feature, case.instance.platform if case.instance else None) if title != line
    ]
    fix = (
        f"Leave it out, or use a line that has it: {', '.join(others)}." if others else "Leave it out: no line has it."
    )
    return error("unsupported-by-line", setting, why, fix)
