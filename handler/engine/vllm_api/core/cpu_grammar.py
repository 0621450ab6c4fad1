"""Grammars on the CPU worker: vLLM 0.16 dies of a batch in which one request has a grammar and another has none.

Its `apply_grammar_bitmask` (vllm/v1/structured_output/utils.py) then makes a tensor in pinned memory, which takes a
GPU's driver. Where every request of the batch has a row it does not: so each request without a grammar gets a row that
allows everything. vLLM imports this in the worker's process (`worker_extension_cls`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker import gpu_model_runner

EVERYTHING = -1  # of a row: 32 tokens a word, each allowed


def apply_to_all(scheduler_output: Any, grammar_output: GrammarOutput, input_batch: Any, logits: Any) -> None:
    """As `apply_grammar_bitmask`, with a row for every request."""
    limited = list(grammar_output.structured_output_request_ids)
    free = [request for request in input_batch.req_ids if request not in set(limited)]
    drafted = scheduler_output.scheduled_spec_decode_tokens
    rows = sum(1 + len(drafted.get(request, ())) for request in free)
    mask = grammar_output.grammar_bitmask
    everything = np.full((rows, mask.shape[1]), EVERYTHING, dtype=mask.dtype)
    extended = GrammarOutput([*limited, *free], np.concatenate([mask, everything]))
    apply_grammar_bitmask(scheduler_output, extended, input_batch, logits)


class GrammarsOnCpu:
    """Adds nothing to the worker: that vLLM imports it is the point."""


gpu_model_runner.apply_grammar_bitmask = apply_to_all
