"""Tells whether a grammar ends a request. Tested on 0.24.0 and 0.29.0.

A grammar and other fields that forbid tokens may leave none that both allow. vLLM then samples any token, and the
grammar rejects it. Since 0.24.0 the scheduler ends such a request with "error" (v1/core/sched/scheduler.py). 0.16.0
goes on without the grammar. The only other reason for that end is a key-value cache that did not arrive from another
instance.
"""

from __future__ import annotations

from typing import Final

from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

# The finish reason of a request whose grammar has rejected a token.
REJECTED: Final = "error"
PROBLEM: Final = (
    "no token is left that the grammar allows: leave out allowed_token_ids, bad_words, logit_bias and min_tokens, "
    "or change the grammar"
)


def is_constrained(llm: AsyncLLM, params: object) -> bool:
    """Whether an end with "error" is its grammar's. Ask once for a request."""
    return (
        isinstance(params, SamplingParams)
        and params.structured_outputs is not None
        and llm.vllm_config.kv_transfer_config is None
    )
