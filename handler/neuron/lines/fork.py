"""The fork on the engine V0: vLLM 0.9.1, and for plans only 0.7.2, with NxD Inference or transformers-neuronx.

Sources: vLLM 0.9.1, worker/neuronx_distributed_model_runner.py and model_executor/model_loader/neuronx_distributed.py;
aws-neuron/upstreaming-to-vllm, branch neuron-2.24-vllm-v0.7.2 (examples/offline_inference/neuron_*.py,
examples/neuron/multi_node, vllm/model_executor/model_loader/neuronx_distributed.py) and main; tutorial "Deploying
Llama3.1 405B (Trn2)". With transformers-neuronx: vLLM 0.9.1, platforms/neuron.py, worker/neuron_worker.py,
worker/neuron_model_runner.py and model_executor/model_loader/neuron.py; guide "Transformers NeuronX Developer Guide for
Continuous Batching"; aws-neuron/upstreaming-to-vllm, examples/offline_inference/neuron_int8_quantization.py and
neuron_speculation.py.
"""

from __future__ import annotations

from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE, NXD_INFERENCE, TRANSFORMERS_NEURONX
from handler.neuron.lines.blocks import DEFAULT_BLOCK
from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.lora import spell_lora_fork
from handler.neuron.lines.nodes import spell_disaggregation, spell_nodes
from handler.neuron.lines.nxd_keys import spell_fp8, spell_neuron_config
from handler.neuron.lines.plan_draft import DEFAULT_CHUNK, PlanDraft, agree, complete_shape, spell_fork
from handler.neuron.lines.speculation import method_of, speculative_config

UNSUPPORTED: Final = frozenset(
    {Feature.MXFP, Feature.EAGLE3, Feature.MEDUSA, Feature.UNFUSED_SPECULATION, Feature.CONTEXT_PARALLEL}
)

# What the name of a line with transformers-neuronx ends with.
SUFFIX: Final = "-tnx"
TNX_FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.CONTINUOUS_BATCHING,
        Feature.CONTEXT_BUCKETS,
        Feature.TOKEN_BUCKETS,
        Feature.BUCKETING,
        Feature.BLOCKS,
        Feature.INT8,
        Feature.ON_DEVICE_SAMPLING,
        Feature.CPU_SAMPLING,
        Feature.DRAFT_MODEL,
        Feature.EAGLE,
        Feature.FUSED_SPECULATION,
        Feature.RAW,
    }
)
# Values of quantization that mean INT8: vLLM's method, and the data type that it reads from NEURON_QUANT_DTYPE.
TNX_QUANTIZATION: Final = ("int8", "s8", "neuron_quant")


def spell(draft: PlanDraft) -> None:
    """Writes the fork's engine arguments and environment."""
    spell_fork(draft)
    draft.env[FRAMEWORK_VARIABLE] = NXD_INFERENCE
    agree(draft, "max_model_len")
    agree(draft, "max_num_seqs")
    if not draft.config.nodes:
        agree(draft, "tensor_parallel_size")
    complete_shape(draft)
    spell_neuron_config(draft)
    if draft.config.on_device_sampling is False:
        draft.env["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"
    _spell_cache(draft)
    spell_speculation(draft, NXD_INFERENCE)
    spell_lora_fork(draft)
    spell_disaggregation(draft)
    spell_nodes(draft)
    spell_fp8(draft)
    if draft.override:
        draft.args["override_neuron_config"] = dict(draft.override)


def _spell_cache(draft: PlanDraft) -> None:
    """Writes a contiguous KV cache, in which a block holds a whole sequence, unless blocks are requested."""
    config = draft.config
    draft.copy("enable_prefix_caching")
    if config.enable_chunked_prefill:
        draft.args["enable_chunked_prefill"] = True
        if draft.number("max_num_batched_tokens") is None:
            length = draft.number("max_model_len") or DEFAULT_CHUNK
            draft.complete("max_num_batched_tokens", min(DEFAULT_CHUNK, length), "chunked prefill needs a chunk size")
    layout = draft.raw.get("is_block_kv_layout") is True
    if config.enable_prefix_caching or config.enable_chunked_prefill or layout:
        _blocks(draft)
    else:
        whole_sequence_blocks(draft)


def _blocks(draft: PlanDraft) -> None:
    """Writes a block size. The fork's worker computes the number of blocks itself (vllm/worker/neuron_worker.py).

    Its loader asserts is_prefix_caching, but sets it only with speculation (model_loader/neuronx_distributed.py).
    """
    if draft.config.enable_prefix_caching and "is_prefix_caching" not in draft.override:
        draft.override["is_prefix_caching"] = True
        why = "with prefix caching the fork asserts is_prefix_caching in NeuronConfig; the plan sets it"
        draft.inform("completed", "is_prefix_caching", why, "Set it in the raw NeuronConfig to choose yourself.")
    draft.copy("block_size")
    agree(draft, "block_size")
    if draft.args.get("block_size") is None:
        draft.complete("block_size", DEFAULT_BLOCK, "a KV cache in blocks needs a block size")
    length, size, sequences = (draft.number(name) for name in ("max_model_len", "block_size", "max_num_seqs"))
    draft.copy("num_gpu_blocks_override")
    if draft.config.num_gpu_blocks_override is None and length and size and sequences and size > 0 and length % size:
        why = f"{length} tokens are not a multiple of block_size {size}, and the fork rounds the number of blocks down"
        draft.complete("num_gpu_blocks_override", -(-length // size) * sequences, why)


def whole_sequence_blocks(draft: PlanDraft) -> None:
    """Writes `block_size = max_model_len`. The fork sets it so itself, whatever it is given."""
    length, size = draft.number("max_model_len"), draft.config.block_size
    if size is not None and size != length:
        why = f"the fork replaces block_size {size} with max_model_len {length}: a block holds a whole sequence"
        draft.warn("block-size-unused", "block_size", why, "Remove it.")
    draft.args["block_size"] = length
    draft.copy("num_gpu_blocks_override")


def spell_speculation(draft: PlanDraft, framework: str) -> None:
    """Writes speculation: vLLM 0.7.2 has an argument for each part, 0.9.1 one object. The override turns EAGLE on.

    0.9.1 gets no length of the draft: the backend compiles the draft as long as the model, and vLLM would reject a
    length above what the draft was trained for (config.py, _maybe_override_draft_max_model_len).
    """
    speculative = speculative_config(draft)
    if speculative is None:
        return
    eagle = method_of(draft) == "eagle"
    if draft.line.startswith("fork-0.7.2"):
        draft.args["speculative_model"] = speculative["model"]
        draft.args["num_speculative_tokens"] = speculative["num_speculative_tokens"]
        draft.args.setdefault("speculative_max_model_len", draft.args.get("max_model_len"))
    else:
        del speculative["method"]
        draft.args["speculative_config"] = speculative
    if eagle and framework == NXD_INFERENCE:
        draft.override.setdefault("enable_eagle_speculation", True)
        draft.override.setdefault("enable_fused_speculation", True)
    else:
        draft.args["use_v2_block_manager"] = True


FORK_091 = Line(
    "fork-0.9.1",
    frozenset(Feature) - UNSUPPORTED,
    ConfigKeys.NXDI,
    ("inf2", "trn1", "trn2"),
    (2, 26),
    spell,
    NXD_INFERENCE,
)
FORK_072 = Line(
    "fork-0.7.2",
    frozenset(Feature) - UNSUPPORTED,
    ConfigKeys.NXDI,
    ("inf2", "trn1", "trn2"),
    (2, 24),
    spell,
    NXD_INFERENCE,
    served=False,
)


def spell_tnx(draft: PlanDraft) -> None:
    """Writes the arguments and variables of vLLM's own backend with transformers-neuronx.

    Variables set buckets and quantization; a block holds a whole sequence. The backend takes the framework only without
    VLLM_NEURON_FRAMEWORK: with it, it reads an attribute that does not exist (platforms/neuron.py, 0.9.1). It saves no
    artifacts; the compiler's cache of single graphs spares a second compile.
    """
    spell_fork(draft)
    draft.env.pop(FRAMEWORK_VARIABLE, None)
    complete_shape(draft)
    whole_sequence_blocks(draft)
    _spell_buckets(draft)
    _spell_quantization(draft)
    if draft.config.on_device_sampling is False:
        draft.env["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"
    spell_speculation(draft, TRANSFORMERS_NEURONX)
    draft.override.update(draft.raw)
    if draft.override:
        draft.args["override_neuron_config"] = dict(draft.override)


def _spell_buckets(draft: PlanDraft) -> None:
    config = draft.config
    if config.context_encoding_buckets:
        draft.env["NEURON_CONTEXT_LENGTH_BUCKETS"] = ",".join(map(str, config.context_encoding_buckets))
    if config.token_generation_buckets:
        draft.env["NEURON_TOKEN_GEN_BUCKETS"] = ",".join(map(str, config.token_generation_buckets))


def _spell_quantization(draft: PlanDraft) -> None:
    """Writes `NEURON_QUANT_DTYPE`, the type, and `quantization="neuron_quant"`, which makes vLLM read it."""
    quantization = draft.config.quantization
    if quantization is None:
        return
    if quantization.lower() not in TNX_QUANTIZATION:
        why = f"transformers-neuronx quantizes to INT8 only, not to '{quantization[:40]}'"
        draft.error("unsupported-quantization", "quantization", why, "Use int8, or remove it.")
        return
    draft.args["quantization"] = "neuron_quant"
    draft.env.setdefault("NEURON_QUANT_DTYPE", "s8")


TNX_091 = Line(
    f"{FORK_091.name}{SUFFIX}",
    TNX_FEATURES,
    ConfigKeys.TRANSFORMERS_NEURONX,
    ("inf2", "trn1"),
    (2, 26),
    spell_tnx,
    TRANSFORMERS_NEURONX,
)
TNX_072 = Line(
    f"{FORK_072.name}{SUFFIX}",
    TNX_FEATURES,
    ConfigKeys.TRANSFORMERS_NEURONX,
    ("inf2", "trn1"),
    (2, 24),
    spell_tnx,
    TRANSFORMERS_NEURONX,
    served=False,
)
