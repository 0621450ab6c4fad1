"""Real models by their published shapes: config.json and the index of their safetensors files, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from handler.neuron.checkpoint.model_facts import ModelFacts, facts_from

DATA = Path(__file__).parents[2] / "recipes" / "published_models.json"
MODELS: dict[str, dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
LLAMA_405B = "meta-llama/Llama-3.1-405B-Instruct"
SCOUT = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
GPT_OSS = "openai/gpt-oss-20b"
LAYER_TENSORS = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def published(name: str) -> ModelFacts:
    """The facts of a model as its repository has them."""
    model = MODELS[name]
    return facts_from(model["config"], name, False, None, model["total_size"])


def json_files(name: str) -> dict[str, bytes]:
    """config.json and model.safetensors.index.json, with as many tensors and shards as the real model has."""
    model = MODELS[name]
    shards, layers = model["shards"], model["config"]["num_hidden_layers"]
    names = [f"model.layers.{layer}.{tensor}.weight" for layer in range(layers) for tensor in LAYER_TENSORS]
    names += ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    weight_map = {
        tensor: f"model-{1 + place * shards // len(names):05}-of-{shards:05}.safetensors"
        for place, tensor in enumerate(names)
    }
    index = {"metadata": {"total_size": model["total_size"]}, "weight_map": weight_map}
    return {
        "config.json": json.dumps(model["config"]).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A file: name -> dtype, shape, bytes of an element. Its data are zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, width) in tensors.items():
        begin, end = end, end + width * _product(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def _product(shape: list[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result
