"""Fixes of vLLM's CPU worker. vLLM imports this module in the worker's process (`worker_extension_cls`).

- 0.16.0 crashes at a batch in which one request has a grammar and another has none. Its `apply_grammar_bitmask`
  (vllm/v1/structured_output/utils.py) then makes a tensor in pinned memory, which needs a GPU driver. It does not if
  every request of the batch has a row. So each request without a grammar gets a row that allows every token.
- 0.16.0 and 0.24.0 ignore all seeds of a batch in which a request has none (`forward_cpu`,
  vllm/v1/sample/ops/topk_topp_sampler.py). `forward_native` of the same class respects them. 0.29.0 has fixed it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import vllm
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker import gpu_model_runner

ALL_ALLOWED = -1  # one word of a row: 32 tokens, each allowed


def apply_to_all(scheduler_output: Any, grammar_output: GrammarOutput, input_batch: Any, logits: Any) -> None:
    """As `apply_grammar_bitmask`, with a row for every request."""
    limited = list(grammar_output.structured_output_request_ids)
    free = [request for request in input_batch.req_ids if request not in set(limited)]
    drafted = scheduler_output.scheduled_spec_decode_tokens
    rows = sum(1 + len(drafted.get(request, ())) for request in free)
    mask = grammar_output.grammar_bitmask
    everything = np.full((rows, mask.shape[1]), ALL_ALLOWED, dtype=mask.dtype)
    extended = GrammarOutput([*limited, *free], np.concatenate([mask, everything]))
    apply_grammar_bitmask(scheduler_output, extended, input_batch, logits)


_forward_cpu = TopKTopPSampler.forward_cpu


def forward_with_seeds(sampler: Any, logits: Any, generators: dict[int, Any], k: Any, p: Any) -> Any:
    """As `forward_cpu`, with every seed.

    :param generators: by the row of a request that has a seed.
    """
    some = 0 < len(generators) < logits.shape[0]
    return (sampler.forward_native if some else partial(_forward_cpu, sampler))(logits, generators, k, p)


class CpuWorkerFixes:
    """An empty worker extension. vLLM imports this module because of it."""


TopKTopPSampler.forward_cpu = forward_with_seeds
if vllm.__version__.startswith("0.16."):
    gpu_model_runner.apply_grammar_bitmask = apply_to_all
