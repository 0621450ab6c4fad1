"""Tiny models of the architectures of large ones, so that a plan for a large model can be started on a CPU.

Of the published config.json the numbers of attention heads, of KV heads and of active experts stay, and so does every
setting that a plan is made from (context, tied embeddings, sliding window, roles of a draft). So each degree of a plan
divides them as it divides those of the large model. What is scaled: the width, the layers, the experts, the vocabulary.
Quantized weights are plain ones here, as they are in the stand-ins, and of a model with images it is the text part.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sample_model
from tests.installed_vllm import version

HEAD = 32  # the smallest that vLLM's attention on a CPU has
LAYERS, WIDTH = 2, 64
RANK = 8
EXPERTS = 4
NARROW = {
    "intermediate_size": 64,
    "intermediate_size_mlp": 64,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_local_experts": EXPERTS,
    "num_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS,
}
# These architectures compute the size of a head from the width.
HEADS_OF_WIDTH = ("qwen2",)
# An architecture with images -> that of its text part. The processors of images need torchvision, which tests lack.
TEXT_PARTS = {
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "MllamaForConditionalGeneration": "LlamaForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
}
# What a text part has of its own. vLLM's CPU build cannot compute Llama 4's experts: its layers are dense here.
TEXT_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "Llama4ForCausalLM": {
        "model_type": "llama4_text",
        "attention_chunk_size": 1 << 20,  # vLLM wants a multiple of a block, which holds a whole sequence
        "intermediate_size_mlp": 64,
        "interleave_moe_layer_step": LAYERS + 1,
        "num_local_experts": 1,
        "num_experts_per_tok": 1,
    },
    "LlamaForCausalLM": {"model_type": "llama"},
    "Qwen3ForCausalLM": {"model_type": "qwen3"},
}


def tiny(config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """The config.json of a tiny model of the same architecture."""
    if "text_config" in config:
        architecture = TEXT_PARTS[config["architectures"][0]]
        own = {"architectures": [architecture], **TEXT_CONFIGS[architecture]}
        return tiny({"torch_dtype": config.get("torch_dtype"), **config["text_config"], **own}, vocabulary)
    small = {name: value for name, value in config.items() if name != "quantization_config"}
    heads = small["num_attention_heads"]
    small.update({name: min(value, small[name]) for name, value in NARROW.items() if name in small})
    small.update(vocab_size=vocabulary, num_hidden_layers=min(LAYERS, small["num_hidden_layers"]), head_dim=HEAD)
    # A multiple of the heads: transformers 5 rejects other widths.
    small["hidden_size"] = HEAD * heads if small["model_type"] in HEADS_OF_WIDTH else -(-WIDTH // heads) * heads
    return small


def write_tiny(config: Mapping[str, Any], directory: Path) -> None:
    """Writes a tiny model with random weights, always the same, and the sample model's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sample = sample_model.path()
    vocabulary = json.loads((sample / "config.json").read_text())["vocab_size"]
    small = tiny(config, vocabulary)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(small))
    read = AutoConfig.from_pretrained(directory)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(read).to(torch.bfloat16)
    weights = model.state_dict()
    if small["model_type"] == "gpt_oss" and version() == "0.24.0":
        # It looks for plain weights by a name that it no longer has (model_executor/models/gpt_oss.py).
        weights = {name.replace(".experts.", ".experts.routed_experts."): tensor for name, tensor in weights.items()}
    model.save_pretrained(directory, state_dict=weights)
    (directory / "config.json").write_text(json.dumps(small))
    (directory / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(sample / "tokenizer.json", directory)
    tokenizer = json.loads((sample / "tokenizer_config.json").read_text())
    # The sample model's own length: vLLM 0.9.1 lowers max_model_len to it.
    del tokenizer["model_max_length"]
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))


def write_tiny_adapter(model: Path, directory: Path) -> None:
    """Writes a LoRA adapter for the attention of a tiny model, in the layout of PEFT."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((model / "config.json").read_text())
    width, outputs = config["hidden_size"], {"q_proj": "num_attention_heads", "v_proj": "num_key_value_heads"}
    torch.manual_seed(0)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, heads in outputs.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.rand(RANK, width)
            tensors[f"{name}.lora_B.weight"] = torch.rand(HEAD * config[heads], RANK)
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "adapter_config.json").write_text(json.dumps({**adapter, "target_modules": list(outputs)}))
    save_file(tensors, directory / "adapter_model.safetensors")
