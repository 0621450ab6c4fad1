"""Trains the sample model into a Hugging Face checkpoint: `python -m sample_model.train --out DIR`.

One seed decides the weights, the samples and their order. The same versions on the same kind of processor
give the same model; elsewhere the last bits of the sums differ, which the margins of the answers
(`sample_model.measure`) allow.
"""

import argparse
import math
import time
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from sample_model import facts, tokenizer
from sample_model.samples import CLOSINGS, OPENINGS, SYSTEM_MESSAGES, Sample, Sampler

IGNORED = -100
"""The label that the loss of transformers passes over."""


# The shape of the model and of its training: these made the shipped weights.
VOCABULARY = 1280
HIDDEN = 256
INNER = 512
LAYERS = 4
HEADS = 8
KEY_VALUE_HEADS = 4
LENGTH = 2048
EPOCHS = 70
BATCH = 24
RATE = 1.5e-3
WARM_UP = 60
DECAY = 0.05
SEED = 7


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description="Train the sample model.")
    parser.add_argument("--out", type=Path, required=True, help="directory for the checkpoint")
    train(parser.parse_args().out)


def train(out: Path) -> None:
    """Learn the tokenizer and the weights from questions.toml, and save both in `out`."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    known = facts.load()
    extra = (*SYSTEM_MESSAGES, *OPENINGS, *CLOSINGS, "Question: ", "\nAnswer:")
    bpe = tokenizer.build(known, extra, VOCABULARY)
    model = build_model(bpe)
    print(f"{model.num_parameters():,} parameters, {len(known)} facts", flush=True)
    fit(model, Sampler(known, bpe, SEED))
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save(bpe, out, LENGTH)


def build_model(bpe: Tokenizer) -> LlamaForCausalLM:
    """A fresh Llama whose generation configuration asks for no sampling of its own."""
    bos, eos = bpe.token_to_id(tokenizer.BOS), bpe.token_to_id(tokenizer.END)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_VALUE_HEADS,
            head_dim=HIDDEN // HEADS,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=False,
            bos_token_id=bos,
            eos_token_id=eos,
            pad_token_id=eos,
        )
    )
    model.generation_config = GenerationConfig(bos_token_id=bos, eos_token_id=eos, pad_token_id=eos)
    return model


def fit(model: LlamaForCausalLM, sampler: Sampler) -> None:
    """AdamW with a linear warm-up and a cosine down to zero, over freshly drawn samples in each epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    shuffle = Random(SEED)
    started, step, steps = time.monotonic(), 0, 0
    for epoch in range(EPOCHS):
        batches = make_batches(list(sampler.epoch()), BATCH, shuffle)
        steps = steps or len(batches) * EPOCHS
        total = 0.0
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = RATE * schedule(step, steps)
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
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {loss_now:.5f}, {spent:.0f} s", flush=True)


def schedule(step: int, steps: int) -> float:
    """The share of the learning rate at a step: up in a line, down in a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARM_UP) / (steps - WARM_UP))))


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
