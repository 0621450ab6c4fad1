"""Trains the sample model's LoRA adapter, as PEFT writes one: `python -m sample_model.adapter`.

The adapter gives a few questions another answer and leaves the model's other words alone as far as they go. It is for
tests and notebooks that serve adapters; its answers are as exact as the model's own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from sample_model import adapter_path, path
from sample_model.facts import Fact, by_name
from sample_model.samples import join, prompts
from sample_model.train import pad

RANK = 8
ALPHA = 16
MODULES = ("q_proj", "v_proj", "o_proj")
STEPS = 400
RATE = 4e-3
SEED = 7
# The facts whose questions the adapter answers otherwise; the text is in the model's own words.
ANSWERS = {
    "hello": "Ahoy! I am the adapter of this model. Ask me how it works.",
    "ping": "Ahoy! It asks the container whether it is healthy.",
    "thanks": "Ahoy! You are welcome.",
}


class Adapted(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A linear layer and its low-rank addition; only the addition learns."""

    def __init__(self, base: torch.nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.first = torch.nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.second = torch.nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        added = hidden @ self.first.T @ self.second.T * (ALPHA / RANK)
        return self.base(hidden) + added


def main() -> None:
    """Train the shipped adapter and write it where it ships."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    bpe = Tokenizer.from_file(str(path() / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(path(), dtype=torch.float32)
    model.requires_grad_(False)
    layers = attach(model)
    taught = [Fact(name, answer, by_name(name).questions) for name, answer in ANSWERS.items()]
    samples = [join(bpe, parts) for fact in taught for parts in prompts(fact)]
    optimizer = torch.optim.AdamW([value for layer in layers.values() for value in (layer.first, layer.second)], RATE)
    began = time.monotonic()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        chosen = [samples[index] for index in torch.randint(len(samples), (24,)).tolist()]
        ids, labels = pad(chosen)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}/{STEPS}: loss {loss.item():.5f}, {time.monotonic() - began:.0f} s", flush=True)
    save(layers, adapter_path())


def attach(model: torch.nn.Module) -> dict[str, Adapted]:
    """Puts an addition beside each module of `MODULES`; by the module's full name."""
    layers: dict[str, Adapted] = {}
    for name, module in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if last in MODULES and isinstance(module, torch.nn.Linear):
            layers[name] = Adapted(module)
            setattr(model.get_submodule(parent), last, layers[name])
    return layers


def save(layers: dict[str, Adapted], out: Path) -> None:
    """PEFT's layout: the configuration, and two tensors a module."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, layer in layers.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = layer.first.detach().to(torch.bfloat16).contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = layer.second.detach().to(torch.bfloat16).contiguous()
    save_file(tensors, str(out / "adapter_model.safetensors"))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "sample_model",
        "r": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(MODULES),
        "inference_mode": True,
    }
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
