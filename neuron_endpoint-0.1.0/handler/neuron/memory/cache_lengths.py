"""How many tokens of a sequence each layer's KV cache holds. A layer that attends to a window keeps the window only.

Source: NxDI 0.10, modules/kvcache/kv_cache_manager.py:194, modules/kvcache/gpt_oss_kv_cache_manager.py:97,
models/llama4/modeling_llama4_text.py:622.
"""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_config import number, text_part
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.neuron_config.model_rules import FLASH_DECODING_MODELS

# Models with the window in every layer (models/llama/modeling_llama.py:1105, models/mistral/modeling_mistral.py:161).
WINDOW_TYPES = ("llama", "mistral")
# Each rank's spare tokens with flash decoding (modules/flashdecode/utils.py:8).
FLASH_DECODING_SPARE: Final = 128


def flash_decoding_tokens(facts: ModelFacts, length: int, degree: int) -> int:
    """The same on one rank with flash decoding. Models that do not count the ranks of a KV head hold all of it."""
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
