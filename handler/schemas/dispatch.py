"""Decides, for each body, which API it uses and which path answers it.

The API. A route of OpenAI's API (`/v1/chat/completions` ...) or of Anthropic's decides by itself. At /invocations the
custom attribute `route=` or `schema=` decides, else a key of the body: `anthropic_version` is a message, `messages` a
chat, `prompt` a completion, `inputs` TGI or LMI, `input` a response, `tokens` a detokenization, `query` a reranking,
`queries`, `text_1` or `data_1` a score. A form with a file is a transcription. On an endpoint for embeddings, `input`
and `messages` are embeddings. On one that classifies and does not embed, they are classified.

The path. The plain path answers one prompt with one plain text, without pydantic. It supports every field in
`ChatFields` and `CompletionFields`, and all of TGI and LMI. The vLLM path uses vLLM's own serving classes. It is used
if

- a field has an effect that only vLLM's classes honour (tools, logprobs, `response_format`, `echo`, `n` ...), by the
  table of fields (`request_fields`) or because only the installed vLLM's own model has it;
- a message has a part that is not text, a tool call, or a key other than `role`, `content` and `name`;
- `prompt` is a list of several prompts;
- the engine's answers are not plain text (`Traits`): a reasoning parser, gpt-oss, usage with details.

A message is answered as the chat that it means. vLLM 0.16 has classes for Anthropic's API, but they lose the id of a
tool's result and the stop sequence, and know no `thinking` (vllm/entrypoints/anthropic/serving.py).

All other routes use the vLLM path only. Both paths give the same answer for the same plain body; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from handler.engine.api_routes import ALIASES, SPEECH, Route, Traits
from handler.engine.engine import Engine
from handler.errors import (
    EndpointError,
    InvalidBody,
    InvalidField,
    MissingField,
    UnsupportedField,
    UnsupportedMediaType,
    UnsupportedTask,
)
from handler.schemas import request_fields
from handler.schemas.anthropic.chat_document import chat_document
from handler.schemas.anthropic.message_fields import (
    VERSION_FIELD,
    CountFields,
    MessageFields,
    MessagesRoute,
    checked,
    unread_keys,
)
from handler.schemas.anthropic.message_reply import CountReply, MessageReply
from handler.schemas.framing import WrappedCall, framed, with_ignored
from handler.schemas.openai import chat, completion, speech, vllm_path
from handler.schemas.openai.speech import FILE, SEND_AUDIO
from handler.schemas.reply import AnyCall
from handler.schemas.request_fields import Body
from handler.schemas.tgi_lmi import inputs_body as inputs
from handler.schemas.tgi_lmi.request_options import CHAT, COMPLETION, RequestOptions

Parse = Callable[[Mapping[str, Any], Engine], AnyCall]
# The routes of the custom attribute `schema`. None is TGI or LMI.
BY_SCHEMA: Final[Mapping[str, Route]] = {CHAT: Route.CHAT, COMPLETION: Route.COMPLETIONS}
BY_KEY: Final[Mapping[str, Route | None]] = {"messages": Route.CHAT, "prompt": Route.COMPLETIONS, "inputs": None}
# Keys that other bodies may have as well. They decide only if none of the keys above is present.
BY_SECONDARY_KEY: Final[Mapping[str, Route]] = {
    "input": Route.RESPONSES,
    "tokens": Route.DETOKENIZE,
    "query": Route.RERANK,
    "queries": Route.SCORE,
    "text_1": Route.SCORE,
    "data_1": Route.SCORE,
}
BODIES: Final[Mapping[Route, Body]] = {
    Route.CHAT: Body.CHAT,
    Route.COMPLETIONS: Body.COMPLETION,
    Route.RESPONSES: Body.RESPONSE,
}
FRAMED: Final[Mapping[Route, str]] = {route: schema for schema, route in BY_SCHEMA.items()}
# The fields of a chat that have another name in a message. The places of messages and their parts differ, too.
IN_MESSAGE: Final = {"response_format": "output_config.format", "reasoning_effort": "output_config.effort"}
NO_HEADERS: Final[Mapping[str, str]] = {}


def parse(
    document: Mapping[str, Any],
    engine: Engine,
    options: RequestOptions | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> AnyCall:
    """Parses a body of /invocations.

    :raises ClientError: the body has no prompt, several kinds of prompts, or a wrong field.
    """
    options = options or RequestOptions()
    attribute = options.attributes.get("route")
    if attribute or VERSION_FIELD in document:
        return parse_path(path_of(attribute or MessagesRoute.MESSAGES), document, engine, headers)
    if isinstance(document.get(FILE), bytes):
        return parse_route(Route.TRANSCRIPTIONS, document, engine, headers)
    route = BY_SCHEMA.get(options.schema) if options.schema else by_key(document, engine.traits)
    if route is None:
        if not engine.traits.generates:
            does, fix = ("makes embeddings", "send 'input'") if engine.traits.pooling else ("transcribes", SEND_AUDIO)
            raise UnsupportedTask("inputs", f"{does} and continues no text", fix)
        fields, ignored = request_fields.resolve(Body.INPUTS, document)
        return with_ignored(inputs.parse(fields, engine, options), ignored)
    call = parse_route(route, document, engine, headers)
    return framed(call, options.framing(FRAMED[route])) if route in FRAMED else call


def parse_path(
    path: Route | MessagesRoute, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str] = NO_HEADERS
) -> AnyCall:
    """:raises ClientError: a field of the body, of OpenAI's API or of Anthropic's, is wrong. The error names it."""
    if isinstance(path, Route):
        return parse_route(path, document, engine, headers)
    try:
        return _message(path, document, engine, headers)
    except EndpointError as error:
        error.of_message = True
        raise


def _message(path: MessagesRoute, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str]) -> AnyCall:
    fields, ignored = request_fields.resolve(Body.MESSAGE, document)
    message = checked(fields, CountFields if path is MessagesRoute.COUNT else MessageFields)
    ignored += request_fields.for_header(unread_keys(fields))
    if path is MessagesRoute.COUNT:
        counted = _as_chat(Route.TOKENIZE, chat_document(message), engine, headers)
        ignored += tuple(name for name in fields if name not in CountFields.__struct_fields__)
        return with_ignored(WrappedCall(counted, CountReply(counted.reply)), ignored)
    document = chat_document(message)
    if engine.serving is None:  # plain text only: the reasoning of earlier turns is left out
        document["messages"] = [
            {name: value for name, value in message.items() if name != "reasoning"} for message in document["messages"]
        ]
    chat = _as_chat(Route.CHAT, document, engine, headers)
    return with_ignored(WrappedCall(chat, MessageReply(chat.reply)), ignored)


def _as_chat(route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str]) -> AnyCall:
    """:raises ClientError: a field is wrong. The error has the name that it has in a message."""
    try:
        return parse_route(route, document, engine, headers)
    except EndpointError as error:
        field = error.param or ""
        part = field.startswith("messages[")
        error.param = "messages" if part else IN_MESSAGE.get(field, error.param)
        error.message = error.message.replace(f"'{field}'", f"'{error.param}'" + " (a part of it)" * part)
        raise


def parse_route(
    route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str] = NO_HEADERS
) -> AnyCall:
    """:raises ClientError: a field is wrong. The error names it."""
    if route not in SPEECH and isinstance(document.get(FILE), bytes):
        raise UnsupportedMediaType("multipart/form-data")
    if route is Route.RESPONSES and document.get("prompt"):
        raise UnsupportedField("prompt", "no templates are stored here: send the prompt itself as 'input'")
    body = BODIES.get(route, Body.ROUTES)
    serving = engine.serving if route in BODIES else engine.require_serving()
    more = speech.FIELDS if route in SPEECH else {"stream"}
    known = (lambda: serving.fields(route) | more) if serving else tuple
    fields, ignored = request_fields.resolve(body, document, known)
    if fields.keys() - request_fields.meanings(body).keys() or not plain_path(route, fields, engine.traits):
        ignored += vllm_path.without_effect(fields) if route is Route.RESPONSES else ()
        served = speech.parse if route in SPEECH else vllm_path.parse
        return with_ignored(served(route, fields, engine, headers), ignored)
    call = chat.parse(fields, engine) if route is Route.CHAT else completion.parse(fields, engine)
    return with_ignored(call, ignored)


def plain_path(route: Route, document: Mapping[str, Any], traits: Traits) -> bool:
    """Whether the plain path can answer a body. A pure function of its arguments."""
    if not traits.generates or not traits.plain_usage:
        return False
    if route is Route.CHAT:
        return traits.plain_chat and request_fields.is_plain(Body.CHAT, document) and _plain_messages(document)
    if route is Route.COMPLETIONS:
        prompt = document.get("prompt")
        several_prompts = isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str | list)
        return not several_prompts and request_fields.is_plain(Body.COMPLETION, document)
    return False


def by_key(document: Mapping[str, Any], traits: Traits) -> Route | None:
    """The route of a body of /invocations, by its keys. None is TGI or LMI. A pure function of its arguments.

    :raises ClientError: the keys do not decide the route.
    """
    keys = [key for key in BY_KEY if key in document]
    if len(keys) > 1:
        raise InvalidBody(f"it has both '{keys[0]}' and '{keys[1]}', and only one is allowed")
    if traits.pooling and (keys == ["messages"] or (not keys and "input" in document)):
        return Route.EMBEDDINGS if "embed" in traits.tasks or "classify" not in traits.tasks else Route.CLASSIFY
    if keys:
        return BY_KEY[keys[0]]
    for key, route in BY_SECONDARY_KEY.items():
        if key in document:
            return route
    raise MissingField(
        "messages", "send 'messages' (chat), 'prompt' (completion), 'inputs' (TGI, LMI) or 'input' (responses)"
    )


def path_of(attribute: str) -> Route | MessagesRoute:
    """:raises InvalidField: the custom attribute `route=` names no route."""
    known = ", ".join((*Route, *MessagesRoute))
    try:
        if attribute in ALIASES:
            return ALIASES[attribute]
        return MessagesRoute(attribute) if attribute in list(MessagesRoute) else Route(attribute)
    except ValueError:
        raise InvalidField("X-Amzn-SageMaker-Custom-Attributes", f"route= must be one of {known}") from None


def _plain_messages(document: Mapping[str, Any]) -> bool:
    messages = document.get("messages")
    return not isinstance(messages, list) or all(_plain(message) for message in messages)


def _plain(message: object) -> bool:
    """Whether a message is plain text. Also true for an invalid message, because the plain path has better errors."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return True
    if any(value not in (None, []) for key, value in message.items() if key not in request_fields.MESSAGE_KEYS):
        return False
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(not isinstance(part, dict) or part.get("type", "text") == "text" for part in content)
