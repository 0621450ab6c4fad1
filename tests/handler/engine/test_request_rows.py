"""A request samples by its own parameters, whatever row of the batch it moves to, and whoever had that row before.

vLLM's own batch, as its runner changes it: requests end, others take their rows, the rest close up, rows are swapped.
"""

from __future__ import annotations

import inspect
import random
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine
ROWS, VOCABULARY, STEPS = 6, 24, 120


def some_params(draw: random.Random) -> Any:
    """Sampling parameters, each of which is given to some requests only."""
    from vllm import SamplingParams

    tokens = draw.sample(range(1, VOCABULARY), 3)
    fields = {
        "temperature": draw.choice([0.0, 0.5, 1.5]),
        "top_p": draw.choice([0.3, 0.9]),
        "top_k": draw.choice([1, 5]),
        "min_p": draw.choice([0.1, 0.6]),
        "presence_penalty": draw.choice([-1.0, 1.0]),
        "frequency_penalty": draw.choice([-1.0, 1.0]),
        "repetition_penalty": draw.choice([0.5, 1.5]),
        "seed": draw.randrange(9),
        "logit_bias": {token: draw.choice([-50.0, 50.0]) for token in tokens},
        "allowed_token_ids": tokens,
        "min_tokens": draw.choice([1, 3]),
    }
    params = SamplingParams(max_tokens=9, **{name: fields[name] for name in fields if draw.random() < 0.4})
    params._all_stop_token_ids = {0}
    params._bad_words_token_ids = [tokens[:1]] if draw.random() < 0.4 else None
    return params


class Batch:
    """vLLM's `InputBatch` with its built-in logits processors."""

    def __init__(self) -> None:
        import torch
        from vllm.v1.sample.logits_processor import LogitsProcessors, builtin
        from vllm.v1.worker.gpu_input_batch import InputBatch

        from handler.engine.engine_client.processes import allowed_tokens

        allowed_tokens.register()

        device = torch.device("cpu")
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=ROWS))
        kinds = (builtin.MinPLogitsProcessor, builtin.LogitBiasLogitsProcessor, builtin.MinTokensLogitsProcessor)
        arguments = {
            "max_num_reqs": ROWS,
            "max_model_len": 64,
            "max_num_batched_tokens": 64,
            "device": device,
            "pin_memory": False,
            "vocab_size": VOCABULARY,
            "block_sizes": [16],
            "kernel_block_sizes": [16],
            "max_num_blocks_per_req": [4],
            "logitsprocs": LogitsProcessors([kind(config, device, False) for kind in kinds]),
        }
        known = inspect.signature(InputBatch).parameters
        self.batch: Any = InputBatch(**{name: value for name, value in arguments.items() if name in known})
        self.params: dict[str, Any] = {}

    def add(self, name: str, params: Any) -> None:
        import torch
        from vllm.v1.worker.gpu_input_batch import CachedRequestState

        generator = None if params.seed is None else torch.Generator().manual_seed(params.seed)
        self.params[name] = params
        self.batch.add_request(
            CachedRequestState(
                req_id=name,
                prompt_token_ids=[1, 2],
                mm_features=[],
                sampling_params=params,
                generator=generator,
                block_ids=([0],),
                num_computed_tokens=0,
                output_token_ids=[],
            )
        )

    def remove(self, name: str) -> None:
        del self.params[name]
        self.batch.remove_request(name)

    def rows(self) -> dict[str, Any]:
        """How each request samples, by its name."""
        import torch

        self.batch.refresh_metadata()
        made = self.batch.sampling_metadata
        number = len(self.params)
        logits = torch.zeros(number, VOCABULARY)
        for processor in made.logitsprocs.all:
            logits = processor.apply(logits)
        mask = made.allowed_token_ids_mask
        seen = {}
        for row, name in enumerate(self.batch.req_ids):
            generator = made.generators.get(row)
            seen[name] = {
                "temperature": 0.0 if made.temperature is None else round(float(made.temperature[row]), 3),
                "top_p": 1.0 if made.top_p is None else round(float(made.top_p[row]), 3),
                "top_k": VOCABULARY if made.top_k is None else int(made.top_k[row]),
                "penalties": (0.0, 0.0, 1.0)
                if made.no_penalties
                else tuple(
                    float(values[row])
                    for values in (made.presence_penalties, made.frequency_penalties, made.repetition_penalties)
                ),
                "seed": None if generator is None else generator.initial_seed(),
                "bad words": made.bad_words_token_ids.get(row),
                "forbidden": [] if mask is None else mask[row].nonzero().flatten().tolist(),
                "logits": [round(value, 3) for value in logits[row].tolist()],
            }
        return seen


@pytest.mark.parametrize("seed", range(8))
def test_each_request_samples_as_if_it_were_alone(seed: int) -> None:
    draw = random.Random(seed)
    beside, numbers = Batch(), iter(range(10_000))
    alone: dict[str, Any] = {}
    for _ in range(STEPS):
        for name in [name for name in beside.params if draw.random() < 0.3]:
            beside.remove(name)
            del alone[name]
        while len(beside.params) < ROWS and draw.random() < 0.6:
            name, params = f"r{next(numbers)}", some_params(draw)
            beside.add(name, params)
            single = Batch()
            single.add(name, params)
            alone |= single.rows()
        beside.batch.condense()
        for _ in range(draw.randrange(3) if len(beside.params) > 1 else 0):
            beside.batch.swap_states(*draw.sample(range(len(beside.params)), 2))
        assert beside.rows() == alone
