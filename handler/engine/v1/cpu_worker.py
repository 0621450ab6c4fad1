"""Fixes of vLLM's CPU worker. vLLM imports this module in the worker's process (`worker_extension_cls`).

- 0.16.0 crashes at a batch in which one request has a grammar and another has none. Its `apply_grammar_bitmask`
  (vllm/v1/structured_output/utils.py) then makes a tensor in pinned memory, which needs a GPU driver. It does not if
  every request of the batch has a row. So each request without a grammar gets a row that allows every token.
- 0.16.0 and 0.24.0 ignore all seeds of a batch in which a request has none (`forward_cpu`,
  vllm/v1/sample/ops/topk_topp_sampler.py). `forward_native` of the same class respects them. 0.29.0 has fixed it.
- All, up to 0.32.0, crash if a request with a seed is prefilled in several steps. Its generator is then set back
  by an offset (`_bookkeeping_sync`, vllm/v1/worker/gpu_model_runner.py), which generators for the CPU do not have.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import vllm
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_input_batch import InputBatch

ALL_ALLOWED = -1  # one word of a row: 32 tokens, each allowed


_apply_grammar_bitmask = getattr(gpu_model_runner, "apply_grammar_bitmask", None)  # 0.11.0 has none


def apply_to_all(scheduler_output: Any, grammar_output: Any, input_batch: Any, logits: Any) -> None:
    """As `apply_grammar_bitmask`, with a row for every request."""
    assert _apply_grammar_bitmask is not None
    limited = list(grammar_output.structured_output_request_ids)
    free = [request for request in input_batch.req_ids if request not in set(limited)]
    drafted = scheduler_output.scheduled_spec_decode_tokens
    rows = sum(1 + len(drafted.get(request, ())) for request in free)
    mask = grammar_output.grammar_bitmask
    everything = np.full((rows, mask.shape[1]), ALL_ALLOWED, dtype=mask.dtype)
    extended = type(grammar_output)([*limited, *free], np.concatenate([mask, everything]))
    _apply_grammar_bitmask(scheduler_output, extended, input_batch, logits)


_forward_cpu = TopKTopPSampler.forward_cpu


def forward_with_seeds(sampler: Any, logits: Any, generators: dict[int, Any], k: Any, p: Any) -> Any:
    """As `forward_cpu`, with every seed.

    :param generators: by the row of a request that has a seed.
    """
    some = 0 < len(generators) < logits.shape[0]
    return (sampler.forward_native if some else partial(_forward_cpu, sampler))(logits, generators, k, p)


class RewindingGenerator(torch.Generator):  # type: ignore[misc]  # torch is untyped from here
    """A generator for the CPU. Setting an offset sets it back to where it was made: its request has drawn numbers since
    then for steps of its prefill only, whose tokens are dropped.
    """

    @classmethod
    def of(cls, generator: torch.Generator) -> RewindingGenerator:
        made = cls()
        made._begin = generator.get_state()
        made.set_state(made._begin)
        return made

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        self.set_state(self._begin)


_add_request = InputBatch.add_request


def add_request(batch: Any, request: Any) -> Any:
    """As `InputBatch.add_request`, which is called before a request's prefill, also if that is repeated."""
    if request.generator is not None:
        request.generator = RewindingGenerator.of(request.generator)
    return _add_request(batch, request)


class CpuWorkerFixes:
    """An empty worker extension. vLLM imports this module because of it."""


InputBatch.add_request = add_request
if vllm.__version__.startswith(("0.16.", "0.24.")):
    TopKTopPSampler.forward_cpu = forward_with_seeds
if vllm.__version__.startswith("0.16."):
    gpu_model_runner.apply_grammar_bitmask = apply_to_all
