"""The CPU line: the CPU build of vLLM 0.16, which generates real tokens on any machine."""

from __future__ import annotations

from typing import Final

from handler.neuron.lines.cpu_choices import choose_cache, choose_dtype
from handler.neuron.lines.feature import Feature
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.lora import spell_lora_vllm
from handler.neuron.lines.plan_draft import PlanDraft, pin_grammar_backend, spell_vllm
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


def spell(draft: PlanDraft) -> None:
    """Writes vLLM's arguments. vLLM chooses what the user did not set, except the data type on some CPUs."""
    spell_vllm(draft)
    pin_grammar_backend(draft)
    draft.env.pop("NEURON_COMPILED_ARTIFACTS", None)
    config = draft.config
    draft.copy("enable_prefix_caching", "enable_chunked_prefill", "block_size")
    draft.copy("num_gpu_blocks_override", "quantization")
    choose_dtype(draft)
    choose_cache(draft)
    if config.async_mode is not None:
        draft.args["async_scheduling"] = config.async_mode
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
