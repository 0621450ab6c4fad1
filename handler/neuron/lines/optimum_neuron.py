"""The line of optimum-neuron's plugin, for plans only: vLLM's own arguments.

Models are exported, or in the hub's cache.

Sources: huggingface/optimum-neuron, optimum/neuron/vllm/platform.py and docs/source/guides/vllm_plugin.mdx; guide "AWS
Neuron" of vLLM's installation pages (whose `device="neuron"` vLLM 0.11 no longer has).
"""

from __future__ import annotations

from typing import Final

from handler.neuron.lines.feature import Feature
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.lines.shared_spelling import (
    complete_degree,
    complete_length,
    complete_sequences,
    remove_legacy,
    spell_environment,
    spell_vllm,
)

FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.CONTINUOUS_BATCHING,
        Feature.CPU_SAMPLING,
        Feature.CHUNKED_PREFILL,
        Feature.BLOCKS,
    }
)


def spell(draft: PlanDraft) -> None:
    """Writes vLLM's own arguments. The platform itself sets the block size and turns prefix caching off."""
    spell_vllm(draft)
    remove_legacy(draft)
    spell_environment(draft)
    complete_length(draft)
    complete_sequences(draft)
    complete_degree(draft)
    if draft.config.enable_chunked_prefill is not None:
        draft.args["enable_chunked_prefill"] = draft.config.enable_chunked_prefill
    block = draft.config.block_size
    if block is not None and block != draft.number("max_model_len"):
        why = f"optimum-neuron replaces block_size {block} with max_model_len"
        draft.warn("block-size-unused", draft.request.setting("block_size"), why, "Remove it.")
    if draft.config.num_gpu_blocks_override is not None:
        draft.args["num_gpu_blocks_override"] = draft.config.num_gpu_blocks_override
    if draft.additional:
        draft.args["additional_config"] = dict(draft.additional)


OPTIMUM = Line("optimum", FEATURES, ConfigKeys.NONE, ("inf2", "trn1"), (2, 26), spell, served=False)
