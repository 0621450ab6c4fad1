"""A request to the engine and where its tokens go. Independent of vLLM and of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from handler.errors import EndpointError

# The stop string or the token id that ended the text. None for the tokenizer's end token, and for a limit. vLLM adds
# the further end tokens of generation_config.json to the request's own.
StopReason = int | str | None


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar that the answer must follow: a JSON schema (`json`) or a regular expression (`regex`).

    :param text: the schema or the expression.
    :param field: the request field that it came from, for messages.
    """

    kind: Literal["json", "regex"]
    text: str
    field: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are sampled and when to stop. None means the model's own default (generation_config.json).

    :param max_tokens: the most tokens to generate. None: as many as the context has room for.
    :param max_tokens_field: the request field that `max_tokens` came from, for messages.
    :param logprobs: return the log probability of each generated token, and of this many of the likeliest tokens.
    :param prompt_logprobs: the same for each token of the prompt.
    """

    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
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


# The scores of one position: those of its own token, then those of the likeliest tokens, the likeliest first.
Position = Sequence[Score]


# Receives the scores of the tokens that the sink gets next, before it gets them, on the engine's loop. The second
# argument has those of the prompt. It is given once, and the first token has none. Both may be made when they are first
# read: those of a whole reply take long, so read them in a thread. Must not block or raise.
Scores = Callable[[Sequence[Position], Sequence[Position | None] | None], None]
# Receives when a generation was queued and scheduled, and when its first and last token were made. Monotonic seconds.
# Called once, before the sink gets the end, on the engine's loop, if the core reports them. Must not block or raise.
Times = Callable[[float, float, float, float], None]


@dataclass(slots=True)
class TokenCounts:
    """The token counts of one request. Counted on the engine's loop, and read after the request has ended.

    :ivar prompt: the tokens of all its prompts.
    :ivar output: the tokens of all its sequences, including those made before a client disconnected.
    :ivar finish: the finish reason of its sequences; `length` if one of them has it.
    """

    prompt: int = 0
    output: int = 0
    finish: str | None = None

    def ended(self, finish_reason: str | None) -> None:
        """A sequence has ended; None: it has not."""
        if finish_reason is not None and self.finish != "length":
            self.finish = finish_reason


@dataclass(frozen=True, slots=True)
class Generation:
    """One request to the engine.

    :param request_id: unique. The client gets it as the reply's id.
    :param prompt: token ids within the vocabulary.
    :param stream: send text as it is generated, rather than once at the end.
    :param scores: receives the log probabilities, if the sampling requests any.
    :param model: the model name in the request: an adapter's, or one of the model's own.
    :param times: receives the times of the generation's stages.
    :param trace: W3C trace context, for vLLM's own spans.
    :param apart: the reply has an event for every token, so tokens of different steps are never pushed together.
    :param names: the request fields that parameters came from, if they have other names there, for messages.
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
    names: Mapping[str, str] | None = None


class Sink(Protocol):
    """Receives the tokens of a request. Both methods are called on the engine's loop and must not block or raise.

    Neither is called again after a push with a `finish_reason`, or after `fail`.
    """

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None: ...

    def fail(self, error: EndpointError) -> None: ...


class StageListener(Sink, Protocol):
    """A sink whose request may end before its first token, because the client disconnected or the deadline passed."""

    @property
    def ended(self) -> bool: ...
