"""The tensors that a model's files must hold, by name and shape, from its config.json.

For the families below, whose classes in vLLM 0.16 (vllm/model_executor/models) load exactly these. A missing part of a
fused projection (`q_proj` without `k_proj`) is not noticed by vLLM, which then computes with what was in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from handler.json_value import Json

# Model type -> its architecture, and the values of keys that config.json may leave out (transformers 4.57,
# models/*/configuration_*.py).
_COMMON: Final[dict[str, Json]] = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
_QWEN: Final = {**_COMMON, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}
FAMILIES: Final[Mapping[str, tuple[str, dict[str, Json]]]] = {
    "llama": ("LlamaForCausalLM", {**_COMMON, "vocab_size": 32000, "intermediate_size": 11008}),
    "mistral": (
        "MistralForCausalLM",
        {**_COMMON, "vocab_size": 32000, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    "qwen2": ("Qwen2ForCausalLM", _QWEN),
    "qwen3": ("Qwen3ForCausalLM", {**_QWEN, "head_dim": 128}),
}
# Parts of names that every one of them skips.
SKIPPED: Final = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "scale", "zero_point")
HEAD: Final = "lm_head.weight"
EMBEDDINGS: Final = "model.embed_tokens.weight"


def expected_tensors(config: Mapping[str, Json]) -> dict[str, tuple[int, ...]] | None:
    """Name -> shape; None if the model is of no family that is known here, or its weights are quantized."""
    kind = str(config.get("model_type"))
    architectures = config.get("architectures") or [FAMILIES.get(kind, ("",))[0]]
    known = [architecture for architecture, _ in FAMILIES.values()]
    if kind not in FAMILIES or not isinstance(architectures, list) or architectures[0] not in known:
        return None
    if "quantization_config" in config or "compression_config" in config:
        return None
    return dict(_tensors(kind, {**FAMILIES[kind][1], **config}))


def _tensors(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, heads = (_count(config, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
    own = config.get("head_dim") if kind != "qwen2" else None
    size = own if isinstance(own, int) and own > 0 else hidden // max(heads, 1)
    keys = (_count(config, "num_key_value_heads") or heads) * size
    bias, mlp_bias = kind == "qwen2" or config.get("attention_bias") is True, config.get("mlp_bias") is True
    attention = {"q_proj": (heads * size, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    yield EMBEDDINGS, (_count(config, "vocab_size"), hidden)
    yield "model.norm.weight", (hidden,)
    if config.get("tie_word_embeddings") is not True:
        yield HEAD, (_count(config, "vocab_size"), hidden)
    for layer in range(min(_count(config, "num_hidden_layers"), 1000)):
        place = f"model.layers.{layer}"
        yield f"{place}.input_layernorm.weight", (hidden,)
        yield f"{place}.post_attention_layernorm.weight", (hidden,)
        for name, shape in {**attention, "o_proj": (hidden, heads * size)}.items():
            yield f"{place}.self_attn.{name}.weight", shape
            if bias and (name != "o_proj" or kind in ("llama", "mistral")):
                yield f"{place}.self_attn.{name}.bias", shape[:1]
        for name, shape in mlp.items():
            yield f"{place}.mlp.{name}.weight", shape
            if mlp_bias and kind in ("llama", "mistral"):
                yield f"{place}.mlp.{name}.bias", shape[:1]
        if kind == "qwen3":
            yield f"{place}.self_attn.q_norm.weight", (size,)
            yield f"{place}.self_attn.k_norm.weight", (size,)


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0
