"""The CPU line: the CPU build of vLLM 0.16, which generates real tokens on any machine."""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.current_machine import SPACE, HostCpu
from handler.neuron.hardware.instance_catalogue import GIB
from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.lora import spell_lora_vllm
from handler.neuron.lines.plan_draft import PlanDraft, engines_here, pin_grammar_backend, spell_vllm
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

SHARE: Final = 4  # a cache takes at most one of so many parts of the free memory
SEQUENCES: Final = 128  # vLLM's own number for a server on a CPU, for each rank (0.16, vllm/engine/arg_utils.py)
# Versions with vLLM's own attention for a CPU (v1/attention/backends/cpu_attn.py).
ATTENTION: Final = ("0.16.0", "0.24.0", "0.29.0", "0.32.0")
BLOCK: Final = 128  # tokens in a block of vLLM's own choice on a CPU (vllm/platforms/cpu.py); 0.9.1 has smaller ones
WIDTH: Final = 4  # bytes of a float32
SETTING: Final = "SM_VLLM_DTYPE"
FIX: Final = f"Set {SPACE} (in GiB) to choose yourself."


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
    require_blocks(draft)
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


def choose_cache(draft: PlanDraft) -> None:
    """Sets VLLM_CPU_KVCACHE_SPACE, which holds for each rank, to what all sequences take in whole GiB.

    More than a quarter of the free memory is taken only for one sequence of the whole context. vLLM's default is half
    of a NUMA node's memory, whatever the plan needs (vllm/platforms/cpu.py). With a second engine on the machine the
    kernel then ends one of the two.
    """
    configured, cpu, facts = draft.env.get(SPACE), draft.cpu, draft.facts
    if draft.args.get("kv_cache_memory_bytes") is not None:
        setting = draft.config.setting("kv_cache_memory_bytes")
        draft.warn("kv-cache-memory", setting, f"on a CPU {SPACE} holds in its place", f"Set {SPACE}, in GiB.")
    if configured is not None and not configured.strip().isdecimal():
        draft.error(
            "invalid-setting", SPACE, f"'{configured[:60]}' is not a whole number", "Give the cache's size in GiB."
        )
    if configured is not None or cpu is None:
        return
    ranks = (draft.number("tensor_parallel_size") or 1) * (draft.number("pipeline_parallel_size") or 1)
    caches = ranks * engines_here(draft.args)
    most, why = cpu.free // caches // SHARE, "the key-value cache may take a quarter of the free memory"
    size = max(1, most // GIB)
    if facts is not None and (sequence := sequence_bytes(draft, facts) // ranks):
        sequences, length = draft.number("max_num_seqs") or SEQUENCES * ranks, sequence_length(draft, facts)
        whole = f"{sequences} sequences of {length} tokens take {sequence * sequences / GIB:.2f} GiB of key-value cache"
        if sequence * sequences <= most:
            size, why = -(-sequence * sequences // GIB), whole
        else:
            size, why = max(size, -(-sequence // GIB)), f"{whole}, and {why}, or hold one sequence"
        if size * GIB * caches > cpu.free // 2 and size > 1:
            fix = "Lower max_model_len, or use a machine with more memory."
            draft.warn("kv-cache-small", "max_model_len", f"{why}: too little is free", fix)
    draft.env[SPACE] = str(size)
    draft.inform("completed", SPACE, f"{why}; the plan sets it to {size} GiB", FIX)


def require_blocks(draft: PlanDraft) -> None:
    """Rejects fewer blocks than one sequence of the whole context needs: vLLM checks the cache's size before it takes
    this number, and a longer request then waits for blocks for ever. One block is never given out (block_pool.py)."""
    blocks, size = draft.number("num_gpu_blocks_override"), draft.number("block_size") or BLOCK
    length = draft.number("max_model_len") or (draft.facts.longest if draft.facts else None)
    if blocks is None or length is None or size < 1 or blocks >= (needed := -(-length // size) + 1):
        return
    why = f"{blocks} blocks of {size} tokens, of which vLLM keeps one, do not hold a sequence of {length} tokens"
    fix = f"Give {needed} or more, or remove it."
    draft.error("too-few-blocks", draft.config.setting("num_gpu_blocks_override"), why, fix)


def sequence_bytes(draft: PlanDraft, facts: ModelFacts) -> int:
    """The key-value cache of one sequence of the whole context; 0 if the model's shape is not known."""
    width = 4 if (draft.args.get("dtype") or facts.torch_dtype) == "float32" else 2
    return 2 * width * facts.layers * facts.kv_heads * facts.head_dim * sequence_length(draft, facts)


def sequence_length(draft: PlanDraft, facts: ModelFacts) -> int:
    """The longest sequence, in tokens."""
    return draft.number("max_model_len") or facts.max_position_embeddings or 0


def choose_dtype(draft: PlanDraft) -> None:
    """Chooses float32 if this machine's CPU has no arithmetic for the checkpoint's 16-bit type.

    vLLM would compute in the checkpoint's type, several times slower. Quantized checkpoints keep their type: most of
    vLLM's quantized layers reject float32.
    """
    facts, cpu = draft.facts, draft.cpu
    if facts is None or cpu is None or not cpu.lacks(facts.torch_dtype):
        return
    if draft.args.get("dtype") not in (None, "auto") or draft.args.get("quantization") or facts.quantized:
        return
    dtype = facts.torch_dtype
    slow = f"this machine's CPU has no {dtype} arithmetic and computes {dtype} several times slower than float32"
    obstacle = _obstacle(draft, facts, cpu)
    if obstacle:
        why = f"{slow}; the plan keeps the checkpoint's {dtype}, because {obstacle}"
        fix = f"Set {SETTING}=float32 to use float32 anyway, or use a CPU with {dtype} arithmetic."
        draft.warn("dtype-slow", "dtype", why, fix)
        return
    draft.args["dtype"] = "float32"
    why = (
        f"{slow}; the plan sets dtype to float32. The weights take twice the checkpoint's memory, and the "
        "key-value cache holds half as many tokens"
    )
    draft.inform(
        "dtype-float32", draft.config.setting("dtype"), why, f"Set {SETTING}={dtype} to keep the checkpoint's."
    )


def _obstacle(draft: PlanDraft, facts: ModelFacts, cpu: HostCpu) -> str:
    """The reason why a start that works in 16 bits might fail in float32; empty if there is none."""
    if not facts.weight_bytes:
        return "the size of the weights is not known"
    weights = 2 * facts.weight_bytes
    if weights > cpu.memory // 2:
        return f"the weights would take {weights / GIB:.1f} GiB of {cpu.memory / GIB:.1f} GiB of memory"
    longest = sequence_bytes(draft, facts) * WIDTH // 2
    space = draft.env.get(SPACE, "")
    cache = int(space) * GIB if space.strip().isdecimal() else cpu.free // 2
    if longest <= cache:
        return ""
    tokens = sequence_length(draft, facts)
    return f"a sequence of {tokens} tokens would take {longest / GIB:.1f} GiB of the cache's {cache / GIB:.1f} GiB"


CPU = Line("cpu", FEATURES, ConfigKeys.NONE, (), (0, 0), spell)
