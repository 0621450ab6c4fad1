"""What the engine is asked for and what it gives back, free of vLLM and of HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from handler.errors import EndpointError


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the answer must be: text of a JSON schema (`json`), or of a regular expression (`regex`).

    :param field: the name the client gave it, for messages.
    """

    kind: Literal["json", "regex"]
    text: str
    field: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen and when to stop. None means: the model's own default (generation_config.json).

    :param max_tokens: tokens to generate at the most; None fills the context.
    :param max_tokens_field: the name the client gave it, for messages.
    :param logprobs: log probabilities of each token made, and of so many of the likeliest beside it.
    :param prompt_logprobs: the same of each token of the prompt.
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
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None


class Score(NamedTuple):
    """A token's natural log probability. `text` is the token decoded by itself."""

    token_id: int
    logprob: float
    text: str


# One position: the token that is there, then the likeliest ones, the likeliest first.
Position = Sequence[Score]


class Scores(Protocol):
    """Hears the log probabilities of a generation that asks for them, on the engine's loop, before its sink hears the
    tokens. Must not block or raise.
    """

    def heard(self, tokens: Sequence[Position], prompt: Sequence[Position | None] | None) -> None:
        """Of the tokens that the sink is about to get. `prompt` comes once; its first token has none."""
        ...


class Times(Protocol):
    """Hears when a generation went from stage to stage, in monotonic seconds, where the engine's core tells.

    Once, on the engine's loop, before its sink hears the end. Must not block or raise.
    """

    def __call__(self, queued: float, scheduled: float, first_token: float, last_token: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Generation:
    """One request to the engine.

    :param request_id: unique; returned to the client as the reply's id.
    :param prompt: token ids, already within the vocabulary and the context.
    :param stream: text as it is made, or once at the end.
    :param scores: hears the log probabilities, where the sampling asks for any.
    :param model: the name the client gave: an adapter's, or one of the model's own.
    :param times: hears when it was where.
    :param trace: W3C trace context, which vLLM's own spans go by.
    :param apart: the reply shows every token by itself: tokens of different steps are never pushed together.
    """

    request_id: str
    prompt: tuple[int, ...] | list[int]
    sampling: Sampling
    stream: bool
    scores: Scores | None = None
    model: str | None = None
    times: Times | None = None
    trace: Mapping[str, str] | None = None
    apart: bool = False


class Sink(Protocol):
    """Where tokens go. Both methods are called on the engine's loop and must not block or raise.

    After `finish_reason` is not None, or after `fail`, neither is called again.
    """

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None: ...

    def fail(self, error: EndpointError) -> None: ...


class StageListener(Sink, Protocol):
    """A sink that may have had enough before anything came: its client is gone, or its time is up."""

    @property
    def ended(self) -> bool: ...
