"""Computes the bytes of one rank's tensors: weights and KV cache."""

from __future__ import annotations

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.memory.cache_lengths import cached_tokens, flash_decoding_tokens
from handler.neuron.memory.memory_shape import WIDTHS, MemoryShape
from handler.neuron.memory.rank_weights import rank_weights, shard_heads, stored_parameters

MODULES = ("self_attn", "mlp")
# Stored data types in which one element is one parameter.
PLAIN_DTYPES = {"BF16", "F16", "F32", "F8_E4M3"}


def weight_bytes(facts: ModelFacts, shape: MemoryShape) -> int:
    """Weights of one rank, in the data type that they are computed in.

    If the checkpoint has more parameters than its language model (a vision tower), the rest is split by the degree. If
    it has fewer than the shape suggests (a model that is not a gated transformer), the result is scaled down.
    """
    stored = _parameters(facts)
    if not (facts.layers and facts.hidden_size):
        return int((stored or 0) * shape.width / shape.degree)
    rank = rank_weights(facts, shape.degree, shape.attention_degrees)
    attention, mlp = (
        shape.width - (shape.width - 1.0) * _quantized_share(facts.layers, shape, module) for module in MODULES
    )
    size = rank.attention * attention + rank.mlp * mlp + (rank.embeddings + rank.replicated) * shape.width
    counted = stored_parameters(facts)
    kernel = _kernel_bytes(facts, shape)
    if stored is None:
        return int(size + kernel)
    return int(size * min(stored / counted, 1.0) + max(stored - counted, 0) * shape.width / shape.degree + kernel)


def cache_bytes(facts: ModelFacts, shape: MemoryShape) -> int:
    """KV cache of one rank: keys and values of each layer, KV head, token and sequence."""
    if not facts.heads or not facts.kv_heads:
        return 0
    degree = max(shape.degree // shape.attention_dp, 1)
    heads = shard_heads(facts.heads, facts.kv_heads, degree).kv_per_rank
    tokens = -(-shape.cache_tokens // shape.attention_dp)
    layers = facts.layers if shape.blocks else _full_layers(facts, shape)
    return int(2 * layers * heads * facts.head_dim * tokens * shape.cache_width)


def _full_layers(facts: ModelFacts, shape: MemoryShape) -> float:
    """The number of layers with a whole sequence that would hold as many tokens."""
    if shape.flash_decoding:
        return flash_decoding_tokens(facts, shape.length, shape.degree) / shape.length
    return cached_tokens(facts, shape.length) / shape.length


def _kernel_bytes(facts: ModelFacts, shape: MemoryShape) -> float:
    """What the kernel of quantized MLPs adds on one rank: a width that is a multiple of 128, and 128 float32 scales
    for each output (NxDI 0.10, models/llama/modeling_llama.py:349, modules/attention/utils.py:176)."""
    if not shape.mlp_kernel:
        return 0.0
    width = -(-facts.intermediate_size // shape.degree)
    padded = -(-width // 128) * 128
    weights = 3 * facts.hidden_size * (padded - width)
    scales = 4 * 128 * (2 * padded + facts.hidden_size)
    return facts.layers * _quantized_share(facts.layers, shape, "mlp") * (weights + scales)


def _quantized_share(layers: int, shape: MemoryShape, module: str) -> float:
    """The share of layers whose attention or MLP is quantized. `modules_to_not_convert` holds parts of module paths."""
    if not shape.quantized:
        return 0.0
    paths = (f".model.layers.{layer}.{module}." for layer in range(layers))
    kept = sum(any(f".{name.strip('.')}." in path for name in shape.unquantized) for path in paths)
    return 1 - kept / layers


def _parameters(facts: ModelFacts) -> int | None:
    """The number of stored parameters; None if the files do not tell it, as with packed formats (MXFP4)."""
    packed = "quantization_config" in facts.config
    if facts.parameters:
        return None if packed and set(facts.dtypes) - PLAIN_DTYPES else facts.parameters
    if facts.weight_bytes and not packed:
        return int(facts.weight_bytes / WIDTHS.get(facts.torch_dtype or "", 2.0))
    return None
