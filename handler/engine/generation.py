"""What the engine is asked for and what it gives back, free of vLLM and of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from handler.errors import EndpointError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen and when to stop. None means: the model's own default (generation_config.json).

    :param max_tokens: tokens to generate at the most; None fills the context.
    :param max_tokens_field: the name the client gave it, for messages.
    """

    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """One request to the engine.

    :param request_id: unique; returned to the client as the reply's id.
    :param prompt: token ids, already within the vocabulary and the context.
    :param stream: text as it is made, or once at the end.
    """

    request_id: str
    prompt: tuple[int, ...] | list[int]
    sampling: Sampling
    stream: bool


class Sink(Protocol):
    """Where tokens go. Both methods are called on the engine's loop and must not block or raise.

    After `finish_reason` is not None, or after `fail`, neither is called again.
    """

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None: ...

    def fail(self, error: EndpointError) -> None: ...
