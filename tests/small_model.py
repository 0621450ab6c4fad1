"""Writes a model of some hundred kB that passes the check: three files, without torch."""

from __future__ import annotations

import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

import sample_model
from handler.neuron.checkpoint.model_layout import expected_tensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 1280,
    "max_position_embeddings": 2048,
    "tokenizer_class": "PreTrainedTokenizerFast",
    "torch_dtype": "bfloat16",
}


def write_small_model(directory: Path, tail: bytes = b"", **config: Any) -> Path:
    """Writes config.json, tokenizer.json and model.safetensors.

    :param tail: the last bytes of the weights.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    shutil.copy(sample_model.path() / "tokenizer.json", directory)
    header, end = {}, 0
    for name, shape in (expected_tensors(CONFIG | config) or {}).items():
        begin, end = end, end + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(bytes(range(256)) * min(end // 256, 4096))
        file.truncate(8 + len(text) + end)  # sparse, if the configuration is of a large model
        file.seek(-len(tail), 2)
        file.write(tail)
    return directory
