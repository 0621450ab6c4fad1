"""What the engine gets of a request: its values, and the products of its counts.

It is checked on what is handed to vLLM, after every conversion: a body may give a number as text, and a list of tokens
as a mixture. A value of a wrong range ends vLLM's core, and with it all other requests. A product of two harmless
numbers may hold everybody up: sequences times what is copied to each, log probabilities of whole replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

from handler.config.endpoint_config import EndpointConfig
from handler.errors import InvalidField

ID_BYTES: Final = 4  # of a token id in a message to the core, about


class EngineParameters(Protocol):
    """vLLM's sampling parameters, of any version."""

    n: int
    max_tokens: int | None
    stop: Sequence[str] | None
    bad_words: Sequence[str] | None
    logprobs: int | None
    prompt_logprobs: int | None


# Fields of `EngineParameters` with token ids: a list, or a mapping from them.
TOKEN_IDS: Final = ("stop_token_ids", "allowed_token_ids", "logit_bias")
# Fields with a number, and the largest whole number that vLLM's core can store (64 bits, and 32 for top_k).
WORD: Final = 2**63
NUMBERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("n", "max_tokens", "min_tokens", "seed", "logprobs", "prompt_logprobs"), WORD),
    **dict.fromkeys(("temperature", "top_p", "min_p"), WORD),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), WORD),
    "top_k": 2**31,
}


@dataclass(frozen=True, slots=True)
class EngineInput:
    """One prompt with its parameters, as the engine gets it.

    :param ids: the prompt. Empty if it is embeddings.
    :param salt: of the prefix cache.
    :param whole: the reply is one document. Its log probabilities are in memory together.
    :param vocab_size: one more than the largest token id.
    """

    ids: Sequence[int]
    salt: str
    parameters: EngineParameters
    whole: bool
    vocab_size: int

    def scores(self, tokens: int, likeliest: int | None) -> int:
        """The log probabilities of tokens, with those of the likeliest ones beside each. -1 is the vocabulary."""
        if likeliest is None:
            return 0
        return tokens * (1 + (self.vocab_size if likeliest < 0 else likeliest))


def _sequences(given: EngineInput) -> dict[str, int]:
    return {"n" if given.parameters.n > 1 else "prompt": given.parameters.n}


def _copied(given: EngineInput) -> dict[str, int]:
    """The bytes of each field that is sent to the core once for each sequence."""
    parameters, sequences = given.parameters, given.parameters.n
    sizes = {name: ID_BYTES * len(getattr(parameters, name, None) or ()) for name in TOKEN_IDS}
    sizes |= {name: sum(map(len, getattr(parameters, name) or ())) for name in ("stop", "bad_words")}
    sizes |= {"cache_salt": len(given.salt), "prompt": ID_BYTES * len(given.ids)}
    return {name: sequences * size for name, size in sizes.items()}


def _scores(given: EngineInput) -> dict[str, int]:
    parameters = given.parameters
    output = given.scores(parameters.n * (parameters.max_tokens or 0), parameters.logprobs) if given.whole else 0
    prompt = given.scores(len(given.ids), parameters.prompt_logprobs)
    return {"logprobs": output, "prompt_logprobs" if parameters.logprobs is None else "echo": prompt}


@dataclass(frozen=True, slots=True)
class Bound:
    """A product that one request may not exceed, over all of its prompts.

    :param setting: the field of `EndpointConfig` with the limit.
    :param what: what is counted, for messages.
    :param amounts: the amount of one prompt, by the request field that causes it.
    """

    setting: str
    what: str
    amounts: Callable[[EngineInput], Mapping[str, int]]


BOUNDS: Final = (
    Bound("max_sequences", "sequences (prompts times n)", _sequences),
    Bound("max_copied_bytes", "bytes that are copied to each sequence, times the sequences", _copied),
    Bound("max_reply_logprobs", "log probabilities in one reply", _scores),
)


@dataclass(slots=True, eq=False)
class RequestCost:
    """What one request has asked for so far.

    :param open_ended: the request gives no number of output tokens. It gets as many as the bounds allow.
    :param searching: it is a beam search, whose steps are requests to the engine. Nothing is added up.
    """

    open_ended: bool = False
    searching: bool = False
    amounts: dict[Bound, int] = field(default_factory=dict)


# The cost of the request that the running task answers. None: each prompt is a request of its own.
COST: Final[ContextVar[RequestCost | None]] = ContextVar("request_cost", default=None)


@dataclass(frozen=True, slots=True)
class CostLimits:
    """:param most: the limit of each setting in `BOUNDS`."""

    most: Mapping[str, int]

    @classmethod
    def of(cls, config: EndpointConfig) -> CostLimits:
        return cls({bound.setting: getattr(config, bound.setting) for bound in BOUNDS})

    def charge(self, given: EngineInput, cost: RequestCost) -> None:
        """Adds one prompt to a request's cost. Lowers the output tokens of an open-ended request to what is allowed.

        :raises InvalidField: the request asks for too much. The error names the field and the setting.
        """
        if cost.open_ended and given.whole:
            self._close(given, cost)
        for bound in BOUNDS:
            amounts, most = bound.amounts(given), self.most[bound.setting]
            total = cost.amounts.get(bound, 0) + sum(amounts.values())
            if total > most:
                setting = f"ENDPOINT_{bound.setting.upper()}"
                name = max(amounts, key=amounts.__getitem__)
                raise InvalidField(name, f"{total:,} {bound.what}; at most {most:,} are allowed ({setting})")
            if not cost.searching:
                cost.amounts[bound] = total

    def _close(self, given: EngineInput, cost: RequestCost) -> None:
        parameters, scores = given.parameters, BOUNDS[-1]
        token = given.scores(parameters.n, parameters.logprobs)
        if token and parameters.max_tokens is not None:
            prompt = given.scores(len(given.ids), parameters.prompt_logprobs)
            left = self.most[scores.setting] - cost.amounts.get(scores, 0) - prompt
            parameters.max_tokens = max(1, min(parameters.max_tokens, left // token))


def check_values(given: EngineInput, largest_id: int) -> None:
    """Checks the values of one prompt's parameters.

    :param largest_id: the largest token id that a prompt may have.
    :raises InvalidField: a token id is outside the vocabulary, or a number is not one that the engine can store.
    """
    check_ids("prompt", given.ids, largest_id)
    for name in TOKEN_IDS:
        ids = getattr(given.parameters, name, None)
        if ids:
            check_ids(name, ids, given.vocab_size - 1)
    for name, most in NUMBERS.items():
        value = getattr(given.parameters, name, None)
        if value is not None and not -most <= value < most:  # also for what is not a number (NaN)
            raise InvalidField(name, "it is not a number that the engine can store")


def check_ids(field: str, ids: Iterable[int], largest: int) -> None:
    """:raises InvalidField: one is no whole number from 0 to `largest`."""
    ids = list(ids)
    if ids and not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= largest):
        place = next(place for place, token in enumerate(ids) if type(token) is not int or not 0 <= token <= largest)
        raise InvalidField(field, f"token id {str(ids[place])[:40]} at position {place} is outside 0 to {largest}")
