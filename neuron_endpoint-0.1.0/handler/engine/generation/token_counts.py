"""Counts the prompt and output tokens of a request that vLLM's serving classes answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenCounts:
    """The token counts of one request. Counted on the engine's loop, and read after the request has ended.

    :ivar prompt: the tokens of all its prompts.
    :ivar output: the tokens of all its sequences, including those made before a client disconnected.
    """

    prompt: int = 0
    output: int = 0
