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
TOKEN_IDS: Final = ("stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids")
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


def _sequences(engine_input: EngineInput) -> dict[str, int]:
    return {"n" if engine_input.parameters.n > 1 else "prompt": engine_input.parameters.n}


def _copied(engine_input: EngineInput) -> dict[str, int]:
    """The bytes of each field that is sent to the core once for each sequence."""
    parameters, sequences = engine_input.parameters, engine_input.parameters.n
    sizes = {name: ID_BYTES * len(getattr(parameters, name, None) or ()) for name in TOKEN_IDS}
    sizes |= {name: sum(map(len, getattr(parameters, name) or ())) for name in ("stop", "bad_words")}
    sizes |= {"cache_salt": len(engine_input.salt), "prompt": ID_BYTES * len(engine_input.ids)}
    extra = dict(getattr(parameters, "extra_args", None) or {})
    sizes["kv_transfer_params"] = _size(extra.pop("kv_transfer_params", None))
    sizes["vllm_xargs"] = _size(extra)
    return {name: sequences * size for name, size in sizes.items()}


def _size(value: object) -> int:
    """The bytes of a JSON value in a message to the core, about."""
    if isinstance(value, Mapping):
        return sum(_size(name) + _size(member) for name, member in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else ID_BYTES


def _chosen(parameters: EngineParameters) -> Sequence[int]:
    """The tokens whose log probabilities are asked for, in place of the likeliest ones' (vLLM 0.24 and later)."""
    return getattr(parameters, "logprob_token_ids", None) or ()


def _scores(engine_input: EngineInput) -> dict[str, int]:
    parameters, chosen = engine_input.parameters, _chosen(engine_input.parameters)
    tokens = parameters.n * (parameters.max_tokens or 0)
    output = engine_input.scores(tokens, len(chosen) or parameters.logprobs) if engine_input.whole else 0
    prompt = engine_input.scores(len(engine_input.ids), parameters.prompt_logprobs)
    return {
        "logprob_token_ids" if chosen else "logprobs": output,
        "prompt_logprobs" if parameters.logprobs is None else "echo": prompt,
    }


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
    :param prompts: how many prompts have not been added. Open-ended ones have equal shares of what the bounds allow.
    """

    open_ended: bool = False
    searching: bool = False
    prompts: int = 1
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

    def charge(self, engine_input: EngineInput, cost: RequestCost) -> None:
        """Adds one prompt to a request's cost. Lowers the output tokens of an open-ended request to what is allowed.

        :raises InvalidField: the request asks for too much. The error names the field and the setting.
        """
        if cost.open_ended and engine_input.whole:
            self._close(engine_input, cost)
        for bound in BOUNDS:
            amounts, most = bound.amounts(engine_input), self.most[bound.setting]
            total = cost.amounts.get(bound, 0) + sum(amounts.values())
            if total > most:
                setting = f"ENDPOINT_{bound.setting.upper()}"
                name = max(amounts, key=amounts.__getitem__)
                raise InvalidField(name, f"{total:,} {bound.what}; at most {most:,} are allowed ({setting})")
            if not cost.searching:
                cost.amounts[bound] = total
        cost.prompts -= 1

    def _close(self, engine_input: EngineInput, cost: RequestCost) -> None:
        parameters, scores = engine_input.parameters, BOUNDS[-1]
        token = engine_input.scores(parameters.n, len(_chosen(parameters)) or parameters.logprobs)
        if token and parameters.max_tokens is not None:
            prompt = engine_input.scores(len(engine_input.ids), parameters.prompt_logprobs)
            left = (self.most[scores.setting] - cost.amounts.get(scores, 0)) // max(1, cost.prompts) - prompt
            parameters.max_tokens = max(1, min(parameters.max_tokens, left // token))


def check_values(engine_input: EngineInput, largest_id: int) -> None:
    """Checks the values of one prompt's parameters.

    :param largest_id: the largest token id that a prompt may have.
    :raises InvalidField: a token id is outside the vocabulary, or a number is not one that the engine can store.
    """
    check_ids("prompt", engine_input.ids, largest_id)
    for name in TOKEN_IDS:
        ids = getattr(engine_input.parameters, name, None)
        if ids:
            check_ids(name, ids, engine_input.vocab_size - 1)
    for name, most in NUMBERS.items():
        value = getattr(engine_input.parameters, name, None)
        if value is not None and not -most <= value < most:  # also for what is not a number (NaN)
            raise InvalidField(name, "it is not a number that the engine can store")


def check_ids(field: str, ids: Iterable[int], largest: int) -> None:
    """:raises InvalidField: one is no whole number from 0 to `largest`."""
    ids = list(ids)
    if ids and not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= largest):
        place = next(place for place, token in enumerate(ids) if type(token) is not int or not 0 <= token <= largest)
        raise InvalidField(field, f"token id {str(ids[place])[:40]} at position {place} is outside 0 to {largest}")
