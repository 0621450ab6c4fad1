"""The tensors that a model's files must hold, by name and shape, from its config.json.

For the families below, whose classes in vLLM 0.16 (vllm/model_executor/models) load exactly these. A missing part of a
fused projection (`q_proj` without `k_proj`) is not noticed by vLLM, which then computes with what was in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import QUANTIZED, number

# Model type -> its architecture, and what config.json may leave out (transformers 4.57, models/*/configuration_*.py).
_ALL: Final[dict[str, Json]] = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
_LLAMA: Final = {**_ALL, "vocab_size": 32000, "intermediate_size": 11008}
_QWEN: Final = {**_ALL, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}
FAMILIES: Final[Mapping[str, tuple[str, dict[str, Json]]]] = {
    "llama": ("LlamaForCausalLM", _LLAMA),
    "mistral": ("MistralForCausalLM", {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8}),
    "qwen2": ("Qwen2ForCausalLM", _QWEN),
    "qwen3": ("Qwen3ForCausalLM", {**_QWEN, "head_dim": 128}),
}
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
FUSED: Final = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
SKIPPED: Final = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "scale", "zero_point")


def is_skipped(name: str, kind: str) -> bool:
    """Whether the class of this model type skips a tensor that it does not have. Qwen's looks for fused ones only."""
    unknown = name.endswith(".bias") or (kind.startswith("qwen") and not any(part in name for part in FUSED))
    return any(part in name for part in SKIPPED) or (name.startswith("model.") and unknown)


def expected_tensors(config: Mapping[str, Json]) -> dict[str, tuple[int, ...]] | None:
    """Name -> shape; None if the model is of no family that is known here, or its weights are quantized."""
    kind = str(config.get("model_type"))
    named = config.get("architectures") or [FAMILIES.get(kind, ("",))[0]]
    known = kind in FAMILIES and isinstance(named, list) and named[0] in [family[0] for family in FAMILIES.values()]
    quantized = any(config.get(key) is not None for key in QUANTIZED)
    return dict(_tensors(kind, {**FAMILIES[kind][1], **config})) if known and not quantized else None


def _tensors(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, heads, words = (
        number(config, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    )
    size = (number(config, "head_dim") if kind != "qwen2" else 0) or hidden // max(heads, 1)
    keys, like_llama = (number(config, "num_key_value_heads") or heads) * size, kind in ("llama", "mistral")
    biased = ["q_proj", "k_proj", "v_proj"] if kind == "qwen2" or config.get("attention_bias") is True else []
    biased += (["o_proj"] if biased else []) * like_llama
    biased += ["gate_proj", "up_proj", "down_proj"] if like_llama and config.get("mlp_bias") is True else []
    parts = {f"self_attn.{name}": (rows, hidden) for name, rows in (("q_proj", heads * size), ("k_proj", keys))}
    parts |= {"self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, heads * size)}
    parts |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    norms |= {"self_attn.q_norm": size, "self_attn.k_norm": size} if kind == "qwen3" else {}
    yield from ((EMBEDDINGS, (words, hidden)), ("model.norm.weight", (hidden,)))
    if config.get("tie_word_embeddings") is not True:
        yield HEAD, (words, hidden)
    for layer in range(min(number(config, "num_hidden_layers"), 1000)):
        place = f"model.layers.{layer}."
        yield from ((f"{place}{name}.weight", (length,)) for name, length in norms.items())
        for name, shape in parts.items():
            yield f"{place}{name}.weight", shape
            if name.rpartition(".")[2] in biased:
                yield f"{place}{name}.bias", shape[:1]
