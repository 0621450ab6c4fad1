"""OpenAI completions on the plain path. Replies have the same fields as vLLM 0.16's, without pydantic.

Source of the shapes: vllm/entrypoints/openai/completion/{protocol,serving}.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, StopReason
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.plain_reply import OF_PROMPT, PlainReply
from handler.schemas.openai.sampling_fields import SamplingFields, convert, sampling, whole_numbers
from handler.schemas.reply import Call, encode, usage

DEFAULT_MAX_TOKENS = 16  # OpenAI's default, for a body without a value or with null


class CompletionFields(SamplingFields, frozen=True, kw_only=True):
    """The fields of a completion body that the plain path supports."""

    prompt: str | list[Any]


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """:raises ClientError: a field is wrong. The error names it."""
    if document.get("prompt") is None:
        raise MissingField("prompt", "send a string, or a list of token ids")
    fields = convert(document, CompletionFields)
    check_model(fields.model, engine.served_names)
    ids = _prompt_ids(fields, engine)
    max_tokens = fields.max_tokens
    if max_tokens is None:
        max_tokens = max(1, min(default_max_tokens(engine.limits), engine.limits.max_model_len - len(ids)))
    request_id = f"cmpl-{secrets.token_hex(16)}"
    return Call(
        Generation(request_id, ids, sampling(fields, max_tokens), bool(fields.stream), model=fields.model),
        CompletionReply(request_id, fields, len(ids), engine),
    )


def default_max_tokens(limits: RequestLimits, default: int = DEFAULT_MAX_TOKENS) -> int:
    """The output tokens of a body that gives no number: the API's default, or what endpoint or model allow."""
    return min(default, limits.max_output or default, limits.default_output or default)


def _prompt_ids(fields: CompletionFields, engine: Engine) -> list[int]:
    """The token ids of the prompt: a string, a list of token ids, or a list with one of these."""
    prompt: object = fields.prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise UnsupportedField("prompt", "send one prompt per request")
        prompt = prompt[0]
    if isinstance(prompt, str):
        add_special_tokens = True if fields.add_special_tokens is None else fields.add_special_tokens
        return engine.prompts.text(prompt, "prompt", add_special_tokens=add_special_tokens)
    prompt = whole_numbers(prompt)
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return engine.prompts.ids(prompt, "prompt")
    raise InvalidField("prompt", "it must be a string or a list of token ids")


class CompletionReply(PlainReply):
    """The reply to one completion request."""

    __slots__ = ()
    before_text = b'{"index":0,"text":'

    def __init__(self, request_id: str, fields: CompletionFields, prompt_tokens: int, engine: Engine) -> None:
        super().__init__(request_id, "text_completion", fields, prompt_tokens, engine)

    def _after(self, finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return (
            b',"logprobs":null,"finish_reason":'
            + encode(finish_reason)
            + b',"stop_reason":'
            + encode(stop_reason)
            + b',"prompt_token_ids":null,"token_ids":null}],"usage":'
            + (encode(usage(self._prompt_tokens, self._completion_tokens)) if self._each_usage else b"null")
            + b"}\n\n"
        )

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        end = finish_reason, stop_reason
        return self._document("text_completion", {"text": text}, len(token_ids), end, of_choice=OF_PROMPT)
