"""Creates a model of a given size: random weights in shards, and the tokenizer of the sample model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.lib.contestant import SAMPLE_MODEL

HIDDEN, INTERMEDIATE = 2048, 8192
LAYERS_A_SHARD = 4
# The parts of a Llama's layer, with their shapes.
LAYER = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    "input_layernorm": (HIDDEN,),
    "post_attention_layernorm": (HIDDEN,),
}
LAYER_BYTES = 2 * sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in LAYER.values())


def write_large_model(directory: Path, size: int) -> Path:
    """Writes a Llama in bfloat16 with as many layers as `size` bytes have. Its replies mean nothing."""
    import torch
    from safetensors.torch import save_file

    directory.mkdir(parents=True)
    for file in SAMPLE_MODEL.iterdir():
        if file.suffix != ".safetensors" and "index" not in file.name:
            shutil.copy(file, directory)
    layers = max(1, size // LAYER_BYTES)
    config = json.loads((SAMPLE_MODEL / "config.json").read_text())
    sizes: dict[str, object] = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": HIDDEN // 16}
    sizes |= {"tie_word_embeddings": False, "dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps({**config, **sizes}))
    torch.manual_seed(0)
    # One layer's values serve for all: a start neither reads nor computes them differently.
    values = {name: (torch.randn(shape) * 0.02).bfloat16() for name, shape in LAYER.items()}
    tops = {f"{name}.weight": torch.randn(config["vocab_size"], HIDDEN) for name in ("model.embed_tokens", "lm_head")}
    tops["model.norm.weight"] = torch.ones(HIDDEN)
    for number, first in enumerate(range(0, layers, LAYERS_A_SHARD)):
        shard = {name: value.bfloat16() for name, value in tops.items()} if not first else {}
        for layer in range(first, min(first + LAYERS_A_SHARD, layers)):
            shard |= {f"model.layers.{layer}.{name}.weight": value.clone() for name, value in values.items()}
        save_file(shard, directory / f"model-{number:05d}.safetensors", metadata={"format": "pt"})
    return directory
