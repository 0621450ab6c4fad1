"""Computes the bytes of one rank's tensors: weights and KV cache.

A layer that attends to a window keeps only the window in its cache.
Source of the cache's lengths: NxDI 0.10, modules/kvcache/kv_cache_manager.py:194,
modules/kvcache/gpt_oss_kv_cache_manager.py:97, models/llama4/modeling_llama4_text.py:622.
"""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_facts import ModelFacts, number, stored_quantization, text_part
from handler.neuron.memory.memory_shape import WIDTHS, MemoryShape
from handler.neuron.memory.rank_weights import rank_weights, shard_heads, stored_parameters
from handler.neuron.neuron_config.model_rules import FLASH_DECODING_MODELS

MODULES = ("self_attn", "mlp")
# Stored data types in which one element is one parameter.
PLAIN_DTYPES = {"BF16", "F16", "F32", "F8_E4M3"}

# Models with the window in every layer (models/llama/modeling_llama.py:1105, models/mistral/modeling_mistral.py:161).
WINDOW_TYPES = ("llama", "mistral")
# Each rank's spare tokens with flash decoding (modules/flashdecode/utils.py:8).
FLASH_DECODING_SPARE: Final = 128


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


def flash_decoding_tokens(facts: ModelFacts, length: int, degree: int) -> int:
    """The tokens of one sequence, summed over all layers, on one rank with flash decoding.

    Models that do not count the ranks of a KV head hold all of it.
    """
    counted = facts.model_type.removesuffix("_text") in FLASH_DECODING_MODELS
    ranks = max(min(degree, facts.heads) // facts.kv_heads, 1) if counted else 1
    return facts.layers * (-(-length // ranks) + FLASH_DECODING_SPARE)


def cached_tokens(facts: ModelFacts, length: int) -> int:
    """The tokens of one sequence of `length`, summed over all layers."""
    text, kind = text_part(facts.config), facts.model_type.removesuffix("_text")
    window, chunk = number(text, "sliding_window"), number(text, "attention_chunk_size")
    if kind == "gpt_oss" and window:
        local = (facts.layers + 1) // 2
        return local * (window // 128 + 1) * 128 + (facts.layers - local) * length
    if kind in WINDOW_TYPES and window:
        return facts.layers * window
    if kind == "llama4" and 0 < chunk < length:
        local = _layers_with_chunks(facts)
        return local * chunk + (facts.layers - local) * length
    return facts.layers * length


def _layers_with_chunks(facts: ModelFacts) -> int:
    """Llama 4's layers with rotary embeddings: those that `no_rope_layers` marks, by default three of four."""
    marks = text_part(facts.config).get("no_rope_layers")
    if isinstance(marks, list) and marks:
        return sum(bool(mark) for mark in marks)
    return facts.layers - facts.layers // 4


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
    packed = stored_quantization(facts.config) is not None
    if facts.parameters:
        plain = bool(facts.dtypes) and set(facts.dtypes) <= PLAIN_DTYPES
        return None if packed and not plain else facts.parameters
    if facts.weight_bytes and not packed:
        return int(facts.weight_bytes / WIDTHS.get(facts.torch_dtype or "", 2.0))
    return None
