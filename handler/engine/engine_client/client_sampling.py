"""vLLM's sampling parameters, and its errors for a wrong request. Tested on 0.9.1 to 0.32.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from handler.engine.engine_client.client_error import CLIENT_ERROR
from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField

# vLLM's exceptions for a wrong request: a ValueError, and since 0.29.0 a `VLLMClientError`, which is none. Since 0.16.0
# some name the parameter and repeat it at the end of their text.
REFUSALS: tuple[type[Exception], ...] = (ValueError, CLIENT_ERROR)

# vLLM's own defaults on the OpenAI routes, for values that neither the request nor generation_config.json sets
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# The fields of `Sampling` that vLLM has under the same name and in the same form.
SAMPLING_FIELDS = tuple(
    name
    for name in Sampling.__slots__
    if name not in ("max_tokens", "max_tokens_field", "stop", "stop_token_ids", "grammar")
)

# The finish reason of a request whose grammar has rejected a token. A grammar and other fields that forbid tokens may
# leave none that both allow. vLLM then samples any token. Since 0.24.0 the scheduler ends such a request with "error"
# (v1/core/sched/scheduler.py). 0.16.0 goes on without the grammar. The only other reason for that end is a key-value
# cache that did not arrive from another instance.
REJECTED = "error"
PROBLEM = (
    "no token is left that the grammar allows: leave out allowed_token_ids, bad_words, logit_bias and min_tokens, "
    "or change the grammar"
)


def sampling_params(
    sampling: Sampling, max_tokens: int, defaults: Mapping[str, float], stream: bool, **further: Any
) -> SamplingParams:
    """vLLM's sampling parameters, checked by vLLM.

    :param further: what only some versions have.
    :raises InvalidField: vLLM rejects a parameter.
    """
    fields = {name: getattr(sampling, name) for name in SAMPLING_FIELDS}
    try:
        return SamplingParams(
            **{name: defaults.get(name) if value is None else value for name, value in fields.items()},
            max_tokens=max_tokens,
            stop=list(sampling.stop),
            stop_token_ids=list(sampling.stop_token_ids),
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
            **further,
        )
    except REFUSALS as error:
        raise as_invalid_field(error, "sampling parameters") from None


def as_invalid_field(error: Exception, otherwise: str) -> InvalidField:
    """The error for the client.

    :param otherwise: the field to name if vLLM names none of the request's fields.
    """
    message = reason(error)
    named = getattr(error, "parameter", None) or message.split(" ", 1)[0].strip("`'\"")
    return InvalidField(named if named in Sampling.__slots__ else otherwise, message)


def reason(error: Exception) -> str:
    """The text of vLLM's error, without the parameter and the value that later versions append."""
    return (str(error.args[0]) if error.args else str(error)).rstrip(".")
