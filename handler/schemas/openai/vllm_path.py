"""The vLLM path: checks a body, which vLLM's own serving classes then answer.

Values that vLLM would ignore, fetch from anywhere or crash on are rejected here: parameters that the device does not
support, media of other hosts, token ids outside the vocabulary. Fields that both paths support are checked as on the
plain path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from handler.engine.api_routes import Route
from handler.engine.contract import PreparedRequest, WholeReply
from handler.engine.engine import Engine
from handler.engine.generation import grammar_limits, sampling_check
from handler.engine.generation.generation import Sink, StopReason, TokenCounts
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import EndpointError, InvalidField, MissingField, UnsupportedField
from handler.schemas.openai import document_limits, media
from handler.schemas.openai.chat import ChatFields, check_template_arguments
from handler.schemas.openai.completion import CompletionFields, default_max_tokens
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import SamplingFields, VllmFields, convert, sampling
from handler.schemas.reply import Reply, RunningCall, event_of
from handler.schemas.request_fields import Body, meanings

PROMPTS: Mapping[Route, str] = {
    Route.CHAT: "messages",
    Route.COMPLETIONS: "prompt",
    Route.RESPONSES: "input",
    Route.EMBEDDINGS: "input",
    Route.TOKENIZE: "prompt",
    Route.DETOKENIZE: "tokens",
    Route.SCORE: "queries",
    Route.RERANK: "query",
    Route.CLASSIFY: "input",
    Route.POOLING: "input",
    Route.TRANSCRIPTIONS: "file",
    Route.TRANSLATIONS: "file",
}
# What a body may have in place of that key.
OTHER_PROMPTS: Mapping[Route, tuple[str, ...]] = {Route.SCORE: ("text_1", "data_1")}
CHATS = ("messages", "prompt_embeds")
# On other routes vLLM ignores `stream`, and the reply of a stream would have no body.
STREAMED = frozenset((Route.CHAT, Route.COMPLETIONS, Route.RESPONSES))
SHARED: Mapping[Route, type[SamplingFields]] = {Route.CHAT: ChatFields, Route.COMPLETIONS: CompletionFields}
# What vLLM's beam search does not use (entrypoints/openai/*/protocol.py, to_beam_search_params).
NOT_IN_BEAMS = (
    *("top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed", "min_tokens"),
    *("stop", "stop_token_ids", "logit_bias", "allowed_token_ids", "bad_words", "prompt_logprobs"),
    *("structured_outputs", "response_format"),
)
# What a response includes, and what vLLM accepts and never reads (responses/protocol.py).
LOGPROBS: Final = "message.output_text.logprobs"
UNREAD: Final[Mapping[str, Sequence[str]]] = {
    "text": ("verbosity",),
    "reasoning": ("summary", "generate_summary"),
    "include": (
        *("reasoning.encrypted_content", "message.input_image.image_url", "file_search_call.results"),
        *("code_interpreter_call.outputs", "computer_call_output.output.image_url"),
    ),
}


def parse(route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str]) -> ServedCall:
    """:raises ClientError: a field is wrong. The error names it."""
    key = PROMPTS[route]
    if all(document.get(name) in (None, []) for name in (key, *OTHER_PROMPTS.get(route, ()), *CHATS)):
        raise MissingField(key, "this route requires it")
    if route not in STREAMED and document.get("stream"):
        raise UnsupportedField("stream", f"{route} has one reply, which is not streamed: leave it out")
    document_limits.check_items(document, "input" if route is Route.RESPONSES else "messages")
    document_limits.check_integers(document)
    document_limits.check_bias(document.get("logit_bias"))
    if route is Route.TOKENIZE or document.get("truncate_prompt_tokens") is not None:
        for field in (key, "messages"):
            engine.prompts.check_length(document_limits.characters(document.get(field)), field, cut=True)
    document = document_limits.with_structured_outputs(document)
    if route is Route.RESPONSES:
        document = document_limits.with_json_mode(document)
    document_limits.fill_arguments(document)
    model = document.get("model")
    check_model(model if isinstance(model, str) else None, engine.served_names)
    sampling_check.check_document(document, engine.limits.sampling)
    serving = engine.require_serving()
    document_limits.check_request_id(document.get("request_id"))
    media.check(document, engine.allowed_media_domains, multimodal=engine.traits.multimodal)
    if document.get("chat_template") and not engine.front_end.trust_request_chat_template:
        raise UnsupportedField("chat_template", "leave it out, or set SM_VLLM_TRUST_REQUEST_CHAT_TEMPLATE=true")
    for field in ("mm_processor_kwargs", "media_io_kwargs"):  # how many frames and pixels are computed with
        if document.get(field) and not engine.front_end.trust_request_mm_kwargs:
            raise UnsupportedField(field, "leave it out, or set SM_VLLM_TRUST_REQUEST_MM_KWARGS=true")
    if document.get("priority") and not engine.traits.priorities:
        raise UnsupportedField("priority", "leave it out, or set SM_VLLM_SCHEDULING_POLICY=priority")
    if not isinstance(document.get("structured_outputs"), dict | None):
        raise InvalidField("structured_outputs", 'send an object such as {"choice": ["yes", "no"]}')
    _check_format(document.get("response_format"))
    grammar_limits.check_document(document)
    if document.get("encoding_format") not in (None, "float", "base64"):
        raise UnsupportedField("encoding_format", "send 'float' or 'base64'")
    if route not in STREAMED:
        document_limits.check_texts(document)
    words = document.get("bad_words")
    for index, word in enumerate(words if isinstance(words, list) else ()):
        if isinstance(word, str):  # vLLM asks for the first token of each, without the blanks in front of it
            engine.prompts.text(word.lstrip(), f"bad_words[{index}]", add_special_tokens=False)
    if route in STREAMED:
        _check_sampling(route, document, engine)
    if route is Route.RESPONSES:
        _check_response(document)
    if document.get("use_beam_search"):
        _check_beams(route, document, engine.limits)
    elif document.get("length_penalty") not in (None, 1):
        raise UnsupportedField("length_penalty", "it is for beam search: send 'use_beam_search', or leave it out")
    if route is Route.COMPLETIONS and document.get("max_tokens") is None:
        # vLLM accepts null, makes the tokens, and then fails with an AssertionError (0.16 to 0.32).
        document["max_tokens"] = default_max_tokens(engine.limits)
    return ServedCall(serving.request(route, document, headers))


def _check_sampling(route: Route, document: Mapping[str, Any], engine: Engine) -> None:
    """Checks the fields that both paths support, as the plain path does."""
    shared = SHARED.get(route, VllmFields)
    more = {*VllmFields.__struct_fields__} - {*shared.__struct_fields__}
    convert({name: value for name, value in document.items() if name in more}, VllmFields)
    known = {name: value for name, value in document.items() if name in shared.__struct_fields__}
    if route is Route.COMPLETIONS:
        if document.get("echo") and known.get("max_tokens") == 0:
            del known["max_tokens"]  # the reply is the prompt alone, with its logprobs
        known["prompt"] = ""
    fields = convert(known, shared)
    if isinstance(fields, ChatFields):
        check_template_arguments(fields.chat_template_kwargs)
    max_tokens, name = fields.max_tokens, "max_tokens"
    if isinstance(fields, ChatFields) and fields.max_completion_tokens is not None:
        max_tokens, name = fields.max_completion_tokens, "max_completion_tokens"
    elif isinstance(fields, VllmFields):
        max_tokens, name = fields.max_output_tokens, "max_output_tokens"
    engine.limits.check_max_tokens(max_tokens, name)
    parameters = sampling(fields, max_tokens, name)
    sampling_check.check(parameters, engine.limits.sampling)
    engine.limits.check_stop_tokens(parameters.stop_token_ids)
    prompt = document.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else 1
    sequences = prompts * (fields.n or 1)
    if sequences > engine.max_sequences:
        field = "n" if (fields.n or 1) > 1 else "prompt"
        raise InvalidField(field, f"it requests {sequences} sequences; at most {engine.max_sequences} are allowed")


def _check_beams(route: Route, document: Mapping[str, Any], limits: RequestLimits) -> None:
    """Rejects what a beam search would ignore, and requires a limit of output tokens in a chat.

    vLLM's beam search never ends before its limit (0.13.0 to 0.32.0, beam_search). Without one it fills the context,
    with a request for each beam and token, and sends nothing until then. A completion has a default limit.
    """
    for name in NOT_IN_BEAMS:
        if meanings(Body.CHAT)[name].has_effect(document.get(name)):
            raise UnsupportedField(name, "a beam search does not use it: leave one of the two out")
    if route is Route.COMPLETIONS and document.get("echo") and document.get("logprobs") is not None:
        raise UnsupportedField("logprobs", "a beam search has none of the prompt: leave it out, or 'echo'")
    if route is not Route.CHAT:
        return
    has_limit = any(document.get(name) is not None for name in ("max_tokens", "max_completion_tokens"))
    if not has_limit and limits.max_output is None and limits.default_output is None:
        raise MissingField(
            "max_tokens",
            "a beam search always runs to its limit, so give the number of output tokens",
        )


def without_effect(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a response's fields that vLLM reads nowhere (0.16 to 0.32), fit for a header."""
    ignored = list[str]()
    for field, parts in UNREAD.items():
        value = document.get(field)
        sent = [name for name in value if value[name]] if isinstance(value, dict) else value
        ignored += [f"{field}.{part}" for part in parts if isinstance(sent, list) and part in sent]
    return tuple(ignored)


def _check_response(document: Mapping[str, Any]) -> None:
    """Rejects what vLLM ignores silently: OpenAI's own tools without a tool server, and `top_logprobs` alone."""
    included = document.get("include")
    if document.get("top_logprobs") and (not isinstance(included, list) or LOGPROBS not in included):
        raise InvalidField("top_logprobs", f"the reply has none without 'include': [\"{LOGPROBS}\"]: send both")
    tools = document.get("tools")
    if not tools and document.get("tool_choice") not in (None, "auto", "none"):
        raise InvalidField("tool_choice", "there are no 'tools' to choose from")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") != "function":
            raise UnsupportedField(f"tools[{index}]", "this endpoint runs no tools itself: send functions")


def _check_format(response_format: object) -> None:
    """Checks the JSON schema. Without one, vLLM 0.16 fails with an AssertionError."""
    if isinstance(response_format, dict) and response_format.get("type") == "json_schema":
        schema = response_format.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise InvalidField("response_format.json_schema", 'send {"name": ..., "schema": {...}}')


class ServedCall:
    """A call of the vLLM path."""

    __slots__ = ("_prepared", "reply")

    def __init__(self, prepared: PreparedRequest) -> None:
        self._prepared = prepared
        self.reply = ServedReply(prepared.route)

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


class ServedReply(Reply):
    """A reply of the vLLM path: vLLM's own bytes, unchanged."""

    __slots__ = ("_route", "_whole")

    def __init__(self, route: Route) -> None:
        self._route = route
        self._whole: WholeReply | None = None

    def keep(self, whole: WholeReply) -> None:
        self._whole = whole

    @property
    def document(self) -> object | None:
        """vLLM's model of the whole reply. None before it is complete."""
        return None if self._whole is None else self._whole.document

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return text.encode()

    def broken(self, error: EndpointError) -> bytes:
        if self._route is not Route.RESPONSES:
            return super().broken(error)
        document = error.document()
        return b"event: error\n" + event_of({**document["error"], **document, "type": "error"})

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        assert self._whole is not None, "the request keeps the document before it ends"
        return self._whole.text().encode()
