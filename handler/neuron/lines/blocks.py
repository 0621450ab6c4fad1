"""KV cache blocks of the NxDI plugin. The cache is contiguous by default; if blocks are requested, the plan sizes them.

vLLM 0.16 turns prefix caching on by default. The plugin then needs a block size, at least
ceil(max_model_len / block_size) * max_num_seqs blocks, and a pa_num_blocks that equals num_gpu_blocks_override.
The plugin's default count rounds down and its check rounds up, so the plan always gives the count
(vllm-project/vllm-neuron, vllm_neuron/platform.py and worker/neuronx_distributed_model_loader.py).
"""

from __future__ import annotations

from typing import Final

from handler.neuron.lines.plan_draft import PlanDraft, agree

DEFAULT_BLOCK: Final = 32
# The native plugin's own block size, in tokens.
NATIVE_BLOCK: Final = 32


def spell_prefix_caching(draft: PlanDraft) -> None:
    """Writes the plugin's engine arguments for prefix caching."""
    args, config = draft.args, draft.config
    args["enable_prefix_caching"] = config.enable_prefix_caching
    agree(draft, "enable_prefix_caching")
    if args["enable_prefix_caching"] is None:
        args["enable_prefix_caching"] = False
        why = "vLLM turns prefix caching on by default, and then the plugin does not start without a block size"
        fix = "To use it, set enable_prefix_caching to true; the plan then sizes the blocks."
        draft.inform("completed", "enable_prefix_caching", f"{why}; the plan turns it off", fix)
    if args["enable_prefix_caching"]:
        spell_blocks(draft)
    else:
        _contiguous(draft)


def spell_blocks(draft: PlanDraft) -> None:
    """Writes a block size, and as many blocks as the longest sequences need."""
    draft.copy("block_size")
    agree(draft, "block_size")
    if draft.args.get("block_size") is None:
        draft.complete("block_size", DEFAULT_BLOCK, "a KV cache in blocks needs a block size")
    draft.copy("num_gpu_blocks_override")
    agree(draft, "num_gpu_blocks_override")
    length, size, sequences = (draft.number(name) for name in ("max_model_len", "block_size", "max_num_seqs"))
    if length is None or size is None or sequences is None or size < 1:
        return
    needed = -(-length // size) * sequences
    blocks = draft.number("num_gpu_blocks_override")
    if blocks is None:
        why = f"{sequences} sequences of {length} tokens in blocks of {size} need {needed} blocks"
        draft.complete("num_gpu_blocks_override", needed, why)
    elif blocks < needed:
        why = f"{blocks} blocks of {size} tokens do not hold {sequences} sequences of {length} tokens: the plugin fails"
        draft.error("too-few-blocks", "num_gpu_blocks_override", why, f"Give {needed} or more, or remove it.")


def _contiguous(draft: PlanDraft) -> None:
    """Without prefix caching the plugin sets block_size to max_model_len and one block for each sequence."""
    config = draft.config
    if config.block_size is not None and config.block_size != draft.number("max_model_len"):
        why = f"without prefix caching the plugin replaces block_size {config.block_size} with max_model_len"
        draft.warn("block-size-unused", "block_size", why, "Remove it, or set enable_prefix_caching to true.")
    if config.num_gpu_blocks_override is None:
        return
    draft.args["num_gpu_blocks_override"] = config.num_gpu_blocks_override
    sequences = draft.number("max_num_seqs")
    if sequences is not None and config.num_gpu_blocks_override < sequences:
        why = f"{sequences} sequences need one block each, but there are only {config.num_gpu_blocks_override}"
        draft.error("too-few-blocks", "num_gpu_blocks_override", why, f"Give {sequences} or more, or remove it.")
