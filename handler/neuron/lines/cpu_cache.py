"""Chooses the size of the CPU line's key-value cache if the user does not set one.

vLLM's default is half of a NUMA node's memory, whatever the plan needs (vllm/platforms/cpu.py). With a second engine on
the machine the kernel then ends one of the two.
"""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.host_cpu import SPACE
from handler.neuron.hardware.instance_catalogue import GIB
from handler.neuron.lines.plan_draft import PlanDraft

SHARE: Final = 4  # a cache takes at most one of so many parts of the free memory
SEQUENCES: Final = 128  # vLLM's own number for a server on a CPU, for each rank (0.16, vllm/engine/arg_utils.py)
FIX: Final = f"Set {SPACE} (in GiB) to choose yourself."


def choose_cache(draft: PlanDraft) -> None:
    """Sets VLLM_CPU_KVCACHE_SPACE, which holds for each rank, to what all sequences take in whole GiB.

    More than a quarter of the free memory is taken only for one sequence of the whole context.
    """
    given, cpu, facts = draft.env.get(SPACE), draft.cpu, draft.facts
    if given is not None and not given.strip().isdecimal():
        draft.error("invalid-setting", SPACE, f"'{given[:60]}' is not a whole number", "Give the cache's size in GiB.")
    if given is not None or cpu is None:
        return
    ranks = (draft.number("tensor_parallel_size") or 1) * (draft.number("pipeline_parallel_size") or 1)
    most, why = cpu.free // ranks // SHARE, "the key-value cache may take a quarter of the free memory"
    size = max(1, most // GIB)
    if facts is not None and (one := sequence_bytes(draft, facts) // ranks):
        sequences, length = draft.number("max_num_seqs") or SEQUENCES * ranks, sequence_length(draft, facts)
        whole = f"{sequences} sequences of {length} tokens take {one * sequences / GIB:.2f} GiB of key-value cache"
        if one * sequences <= most:
            size, why = -(-one * sequences // GIB), whole
        else:
            size, why = max(size, -(-one // GIB)), f"{whole}, and {why}, or hold one sequence"
        if size * GIB * ranks > cpu.free // 2 and size > 1:
            fix = "Lower max_model_len, or use a machine with more memory."
            draft.warn("kv-cache-small", draft.config.setting("max_model_len"), f"{why}: too little is free", fix)
    draft.env[SPACE] = str(size)
    draft.inform("completed", SPACE, f"{why}; the plan sets it to {size} GiB", FIX)


def sequence_bytes(draft: PlanDraft, facts: ModelFacts) -> int:
    """The key-value cache of one sequence of the whole context; 0 if the model's shape is not known."""
    width = 4 if (draft.args.get("dtype") or facts.torch_dtype) == "float32" else 2
    return 2 * width * facts.layers * facts.kv_heads * facts.head_dim * sequence_length(draft, facts)


def sequence_length(draft: PlanDraft, facts: ModelFacts) -> int:
    """The longest sequence, in tokens."""
    return draft.number("max_model_len") or facts.max_position_embeddings or 0
