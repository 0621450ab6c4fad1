"""The full path: bodies that vLLM's own serving classes answer, after the checks that are ours.

What vLLM would ignore, fetch, or die of is refused here: parameters that the device does not honour, media from
anywhere, token ids outside the vocabulary. Fields that both paths know are checked as the short path checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from handler.engine.api_routes import Route
from handler.engine.engine import Engine
from handler.engine.generation import grammar_limits, sampling_check
from handler.engine.generation.generation import Sink
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.generation.token_counts import TokenCounts
from handler.errors import EndpointError, InvalidField, MissingField, UnsupportedField
from handler.schemas.openai import document_limits, media
from handler.schemas.openai import guided_decoding as guided
from handler.schemas.openai.chat import ChatFields, check_template_arguments
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import (
    REFUSED,
    SamplingFields,
    check_strangers,
    check_unserved,
    convert,
    sampling,
)
from handler.schemas.reply import RunningCall, error_event

if TYPE_CHECKING:  # it imports vLLM
    from handler.engine.vllm_api.serving.serving_classes import PreparedRequest, WholeReply

PROMPTS: Mapping[Route, str] = {
    Route.CHAT: "messages",
    Route.COMPLETIONS: "prompt",
    Route.RESPONSES: "input",
    Route.EMBEDDINGS: "input",
    Route.TOKENIZE: "prompt",
    Route.DETOKENIZE: "tokens",
}
SHARED: Mapping[Route, type[SamplingFields]] = {Route.CHAT: ChatFields, Route.COMPLETIONS: CompletionFields}


def parse(route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str]) -> ServedCall:
    """A body of a route as a call.

    :raises ClientError: naming the field.
    """
    key = PROMPTS[route]
    if document.get(key) in (None, []) and document.get("messages") in (None, []) and not document.get("prompt_embeds"):
        raise MissingField(key, "it is what the request is about")
    for name, value in document.items():
        if name in REFUSED:
            check_unserved(name, value)
    document_limits.check_items(document, "input" if route is Route.RESPONSES else "messages")
    document_limits.check_integers(document)
    if route is Route.TOKENIZE or document.get("truncate_prompt_tokens") is not None:
        for field in (key, "messages"):
            engine.prompts.check_length(document_limits.characters(document.get(field)), field, cut=True)
    document = guided.translate(document)
    model = document.get("model")
    check_model(model if isinstance(model, str) else None, engine.served_names)
    serving = engine.require_serving()
    check_strangers(document, serving.fields(route))
    document_limits.check_request_id(document.get("request_id"))
    media.check(document, engine.allowed_media_domains, multimodal=engine.traits.multimodal)
    if document.get("priority") and not engine.traits.priorities:
        raise UnsupportedField("priority", "leave it out, or set SM_VLLM_SCHEDULING_POLICY=priority")
    if not isinstance(document.get("structured_outputs"), dict | None):
        raise InvalidField("structured_outputs", 'send an object such as {"choice": ["yes", "no"]}')
    _check_format(document.get("response_format"))
    grammar_limits.check_document(document)
    if document.get("encoding_format") not in (None, "float", "base64"):
        raise UnsupportedField("encoding_format", "send 'float' or 'base64'")
    if route in SHARED:
        _check_sampling(route, document, engine)
    elif route is Route.RESPONSES:
        _check_response(document, engine)
    sampling_check.check_document(document, engine.limits.sampling)
    if route is Route.CHAT and document.get("use_beam_search"):
        _check_beams(document, engine.limits)
    _check_ids(route, document, engine)
    if route is Route.COMPLETIONS and document.get("max_tokens", 0) is None:
        # OpenAI's default, as on the short path. vLLM takes null, makes the tokens, and then ends in an AssertionError
        # (0.16 to 0.32, completion/serving.py).
        del document["max_tokens"]
    return ServedCall(serving.request(route, document, headers))


def _check_sampling(route: Route, document: Mapping[str, Any], engine: Engine) -> None:
    """What the short path would say about the fields that it knows."""
    shared = SHARED[route]
    known = {name: value for name, value in document.items() if name in shared.__struct_fields__}
    if route is Route.COMPLETIONS:
        if document.get("echo") and known.get("max_tokens") == 0:
            del known["max_tokens"]  # the prompt alone, with its logprobs
        known["prompt"] = ""
    fields = convert(known, shared)
    if isinstance(fields, ChatFields):
        check_template_arguments(fields.chat_template_kwargs)
    asked, name = fields.max_tokens, "max_tokens"
    if isinstance(fields, ChatFields) and fields.max_completion_tokens is not None:
        asked, name = fields.max_completion_tokens, "max_completion_tokens"
    engine.limits.check_max_tokens(asked, name)
    chosen = sampling(fields, asked, name)
    sampling_check.check(chosen, engine.limits.sampling)
    engine.limits.check_stop_tokens(chosen.stop_token_ids)
    prompt = document.get("prompt")
    several = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else 1
    sequences = several * (fields.n or 1)
    if sequences > engine.max_sequences:
        field = "n" if (fields.n or 1) > 1 else "prompt"
        raise InvalidField(field, f"it asks for {sequences} sequences; one request may have {engine.max_sequences}")


def _check_beams(document: Mapping[str, Any], limits: RequestLimits) -> None:
    """vLLM's search never ends before its limit (0.13.0 to 0.32.0, beam_search): without one it fills the context,
    a request for each beam and token, and nothing is sent until then. A completion has a limit of its own."""
    named = any(document.get(name) is not None for name in ("max_tokens", "max_completion_tokens"))
    if not named and limits.max_output is None and limits.default_output is None:
        raise MissingField(
            "max_tokens",
            "a search for beams goes on to its limit whatever it finds, so say how many tokens it may have",
        )


def _check_response(document: Mapping[str, Any], engine: Engine) -> None:
    """Without a tool server vLLM leaves OpenAI's own tools (web search, MCP ...) out in silence."""
    if type(document.get("max_output_tokens")) is int:
        engine.limits.check_max_tokens(document["max_output_tokens"], "max_output_tokens")
    tools = document.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") != "function":
            raise UnsupportedField(f"tools[{index}]", "this endpoint runs no tools itself; send functions")


def _check_ids(route: Route, document: Mapping[str, Any], engine: Engine) -> None:
    """Token ids that the client sends, within the vocabulary: one past it ends vLLM's engine, or raises inside it."""
    key = PROMPTS[route]
    given = document.get(key)
    if not isinstance(given, list) or key == "messages":
        return
    lists: Sequence[object] = [given] if given and isinstance(given[0], int) else given
    for ids in lists:
        if isinstance(ids, list) and all(type(token) is int for token in ids):
            engine.prompts.ids(ids, key)


def _check_format(given: object) -> None:
    """vLLM raises an AssertionError (0.16)."""
    if isinstance(given, dict) and given.get("type") == "json_schema":
        schema = given.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise InvalidField("response_format.json_schema", 'send {"name": ..., "schema": {...}}')


class ServedCall:
    """A call of the full path."""

    __slots__ = ("_prepared", "reply")

    def __init__(self, prepared: PreparedRequest) -> None:
        self._prepared = prepared
        self.reply = ServedReply()

    @property
    def stream(self) -> bool:
        return self._prepared.stream

    @property
    def route(self) -> Route:
        return self._prepared.route

    @property
    def model(self) -> str | None:
        return self._prepared.model

    @property
    def tokens(self) -> TokenCounts:
        return self._prepared.tokens

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        return engine.serving_request(self._prepared, sink, self.reply.keep)


class ServedReply:
    """vLLM's own bytes, passed on."""

    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    __slots__ = ("_whole",)

    def __init__(self) -> None:
        self._whole: WholeReply | None = None

    def keep(self, whole: WholeReply) -> None:
        self._whole = whole

    @property
    def document(self) -> object | None:
        """vLLM's model of the whole reply, once there is one."""
        return None if self._whole is None else self._whole.document

    def opening(self) -> bytes:
        return b""

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        return text.encode()

    def closing(self) -> bytes:
        return b""

    def broken(self, error: EndpointError) -> bytes:
        return error_event(error)

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        assert self._whole is not None, "the request keeps the document before it says that it is done"
        return self._whole.text().encode()
