"""OpenAI completions on the plain path. Replies have the same fields as vLLM 0.16's, without pydantic.

Source of the shapes: vllm/entrypoints/openai/completion/{protocol,serving}.py.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation
from handler.errors import EndpointError, InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import SamplingFields, convert, sampling
from handler.schemas.reply import DONE, Call, encode, error_event, event_of, stream_usage, usage

DEFAULT_MAX_TOKENS = 16  # OpenAI's default, for a body without a value or with null


class CompletionFields(SamplingFields, frozen=True, kw_only=True):
    """The fields of a completion body that the plain path supports."""

    prompt: str | list[Any]


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """Parses a completion body.

    :raises ClientError: a field is wrong. The error names it.
    """
    if document.get("prompt") is None:
        raise MissingField("prompt", "send a string, or a list of token ids")
    fields = convert(document, CompletionFields)
    check_model(fields.model, engine.served_names)
    ids = _prompt_ids(fields, engine)
    max_tokens = fields.max_tokens
    if max_tokens is None:
        most = engine.limits.max_output or DEFAULT_MAX_TOKENS
        max_tokens = max(1, min(DEFAULT_MAX_TOKENS, most, engine.limits.max_model_len - len(ids)))
    options = fields.stream_options
    request_id = f"cmpl-{uuid.uuid4().hex}"
    return Call(
        Generation(request_id, ids, sampling(fields, max_tokens), bool(fields.stream), model=fields.model),
        CompletionReply(
            request_id,
            fields.model or engine.served_names[0],
            len(ids),
            include_usage=bool(options and options.include_usage) or engine.front_end.enable_force_include_usage,
            each_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        ),
    )


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
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return engine.prompts.ids(prompt, "prompt")
    raise InvalidField("prompt", "it must be a string or a list of token ids")


class CompletionReply:
    """The reply to one completion request. The constant bytes of a chunk are made once."""

    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    __slots__ = ("_base", "_completion_tokens", "_each_usage", "_head", "_include_usage", "_prompt_tokens")

    def __init__(
        self, request_id: str, model: str, prompt_tokens: int, *, include_usage: bool, each_usage: bool
    ) -> None:
        self._base: dict[str, object] = {
            "id": request_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._include_usage = include_usage
        self._each_usage = each_usage
        self._head = b"data: " + encode({**self._base, "choices": []})[:-2] + b'{"index":0,"text":'

    def opening(self) -> bytes:
        return b""

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        self._completion_tokens += len(token_ids)
        if finish_reason is None and not text:
            return b""
        return (
            self._head
            + encode(text)
            + b',"logprobs":null,"finish_reason":'
            + encode(finish_reason)
            + b',"stop_reason":'
            + encode(stop_reason)
            + b',"prompt_token_ids":null,"token_ids":null}],"usage":'
            + (encode(usage(self._prompt_tokens, self._completion_tokens)) if self._each_usage else b"null")
            + b"}\n\n"
        )

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        total = stream_usage(self._prompt_tokens, self._completion_tokens)
        return event_of({**self._base, "choices": [], "usage": total}) + DONE

    def broken(self, error: EndpointError) -> bytes:
        return error_event(error)

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }
        return encode(
            {
                **self._base,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": usage(self._prompt_tokens, len(token_ids)),
                "kv_transfer_params": None,
            }
        )
