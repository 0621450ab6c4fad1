"""Trains the sample model into a Hugging Face checkpoint: `python -m sample_model.train --out DIR`.

One seed decides the weights, the samples and their order. The same versions on the same kind of processor
give the same model; elsewhere the last bits of the sums differ, which the margins of the answers
(`sample_model.measure`) allow.
"""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from sample_model import facts, tokenizer
from sample_model.samples import CLOSINGS, OPENINGS, SYSTEM_MESSAGES, Sample, Sampler

IGNORED = -100
"""The label that the loss of transformers passes over."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The shape of the model and of its training; the defaults made the shipped weights."""

    vocabulary: int = 1280
    hidden: int = 256
    inner: int = 512
    layers: int = 4
    heads: int = 8
    key_value_heads: int = 4
    length: int = 2048
    epochs: int = 70
    batch: int = 24
    rate: float = 1.5e-3
    warm_up: int = 60
    decay: float = 0.05
    seed: int = 7
    threads: int = 1


def main() -> None:
    """Parse the command line and train."""
    usual = Settings()
    parser = argparse.ArgumentParser(description="Train the sample model.")
    parser.add_argument("--out", type=Path, required=True, help="directory for the checkpoint")
    parser.add_argument("--epochs", type=int, default=usual.epochs)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--threads", type=int, default=usual.threads)
    given = parser.parse_args()
    train(given.out, Settings(epochs=given.epochs, seed=given.seed, threads=given.threads))


def train(out: Path, settings: Settings) -> None:
    """Learn the tokenizer and the weights from questions.toml, and save both in `out`."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.threads)
    known = facts.load()
    extra = (*SYSTEM_MESSAGES, *OPENINGS, *CLOSINGS, "Question: ", "\nAnswer:")
    bpe = tokenizer.build(known, extra, settings.vocabulary)
    model = build_model(settings, bpe)
    print(f"{model.num_parameters():,} parameters, {len(known)} facts", flush=True)
    fit(model, Sampler(known, bpe, settings.seed), settings)
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save(bpe, out, settings.length)


def build_model(settings: Settings, bpe: Tokenizer) -> LlamaForCausalLM:
    """A fresh Llama whose generation configuration asks for no sampling of its own."""
    bos, eos = bpe.token_to_id(tokenizer.BOS), bpe.token_to_id(tokenizer.END)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.hidden,
            intermediate_size=settings.inner,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.key_value_heads,
            head_dim=settings.hidden // settings.heads,
            max_position_embeddings=settings.length,
            tie_word_embeddings=False,
            bos_token_id=bos,
            eos_token_id=eos,
            pad_token_id=eos,
        )
    )
    model.generation_config = GenerationConfig(bos_token_id=bos, eos_token_id=eos, pad_token_id=eos)
    return model


def fit(model: LlamaForCausalLM, sampler: Sampler, settings: Settings) -> None:
    """AdamW with a linear warm-up and a cosine down to zero, over freshly drawn samples in each epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.95), weight_decay=settings.decay)
    shuffle = Random(settings.seed)
    started, step, steps = time.monotonic(), 0, 0
    for epoch in range(settings.epochs):
        batches = make_batches(list(sampler.epoch()), settings.batch, shuffle)
        steps = steps or len(batches) * settings.epochs
        total = 0.0
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = settings.rate * schedule(step, steps, settings.warm_up)
            ids, labels = pad(batch)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=labels).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            step += 1
        loss_now, spent = total / len(batches), time.monotonic() - started
        print(f"epoch {epoch + 1}/{settings.epochs}: loss {loss_now:.5f}, {spent:.0f} s", flush=True)


def schedule(step: int, steps: int, warm_up: int) -> float:
    """The share of the learning rate at a step: up in a line, down in a cosine."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm_up) / (steps - warm_up))))


def make_batches(samples: list[Sample], size: int, random: Random) -> list[list[Sample]]:
    """Samples of about the same length together, which saves half of the padding, in a random order."""
    random.shuffle(samples)
    samples.sort(key=lambda sample: len(sample.ids) // 8)
    batches = [samples[start : start + size] for start in range(0, len(samples), size)]
    random.shuffle(batches)
    return batches


def pad(batch: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels, padded on the right, where causal attention needs no mask."""
    longest = max(len(sample.ids) for sample in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    labels = torch.full((len(batch), longest), IGNORED, dtype=torch.long)
    for row, sample in enumerate(batch):
        values = torch.tensor(sample.ids)
        ids[row, : len(values)] = values
        labels[row, : len(values)] = torch.where(torch.tensor(sample.learnt), values, IGNORED)
    return ids, labels


if __name__ == "__main__":
    main()
