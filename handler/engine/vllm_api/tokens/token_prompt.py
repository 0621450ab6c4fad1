"""Makes vLLM's prompt object from token ids, in the form that costs the event loop least."""

from __future__ import annotations

from typing import Any

try:
    # 0.21.0, 0.24.0 and 0.32.0: the form that vLLM's renderer makes. Other forms are deprecated, and 0.32.0 passes them
    # to a thread first.
    from vllm.inputs import tokens_input
except ImportError:  # 0.13.0, 0.16.0
    tokens_input = None


def token_prompt(ids: list[int]) -> Any:
    """The prompt for `AsyncLLM.add_request`."""
    return {"prompt_token_ids": ids} if tokens_input is None else tokens_input(ids)
