"""The CPU line: the CPU build of vLLM 0.16, which generates real tokens on any machine."""

from __future__ import annotations

from typing import Final

from handler.neuron.lines.cpu_cache import choose_cache
from handler.neuron.lines.cpu_dtype import choose_dtype
from handler.neuron.lines.feature import Feature
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.lora import spell_lora_vllm
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.lines.shared_spelling import pin_grammar_backend, remove_legacy, spell_environment, spell_vllm
from handler.neuron.lines.speculation import speculative_config

FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.CONTINUOUS_BATCHING,
        Feature.PREFIX_CACHING,
        Feature.BLOCKS,
        Feature.CHUNKED_PREFILL,
        Feature.FP8,
        Feature.MXFP,
        Feature.CPU_SAMPLING,
        Feature.DRAFT_MODEL,
        Feature.EAGLE,
        Feature.EAGLE3,
        Feature.MEDUSA,
        Feature.UNFUSED_SPECULATION,
        Feature.ASYNC_MODE,
        Feature.LORA,
    }
)
COPIED: Final = (
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "block_size",
    "num_gpu_blocks_override",
    "quantization",
)


def spell(draft: PlanDraft) -> None:
    """Writes vLLM's arguments. vLLM chooses what the user did not set, except the data type on some CPUs."""
    spell_vllm(draft)
    remove_legacy(draft)
    pin_grammar_backend(draft)
    spell_environment(draft)
    draft.env.pop("NEURON_COMPILED_ARTIFACTS", None)
    config = draft.config
    for name in COPIED:
        value = getattr(config, name)
        if value is not None:
            draft.args[name] = value
    choose_dtype(draft)
    choose_cache(draft)
    if config.async_mode is not None:
        draft.args["async_scheduling"] = config.async_mode
    if draft.request.extra.get("speculative_config") is None:
        speculative = speculative_config(draft)
        if speculative is not None:
            draft.args["speculative_config"] = speculative
    spell_lora_vllm(draft)
    if draft.additional:
        draft.args["additional_config"] = dict(draft.additional)
    if draft.args.get("enforce_eager") and not config.artifact_store:
        # vLLM compiles its sampler with torch.compile even then, which takes most of an eager start
        # (vllm/v1/sample/ops/topk_topp_sampler.py). With an artifact store the compiled sampler is saved there.
        draft.env.setdefault("TORCHDYNAMO_DISABLE", "1")


CPU = Line("cpu", FEATURES, ConfigKeys.NONE, (), (0, 0), spell)
