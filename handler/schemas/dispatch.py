"""Where a body goes, decided here and nowhere else: which API it speaks, and which path answers it.

The API. A route of its own (`/v1/chat/completions` ...) decides. At /invocations the custom attribute `route=` does, or
`schema=`; else one key of the body: `messages` is a chat, `prompt` a completion, `inputs` TGI or LMI, `input` a
response (on an endpoint that makes embeddings: an embedding, and `messages` as well), `tokens` a detokenization.

The path. The short one makes plain text without pydantic: one prompt, one answer, contents that are text. It serves
every field in `ChatFields` and `CompletionFields`, and all of TGI and LMI. A body goes the full way, through vLLM's own
serving classes, when

- one of `fields.FULL` asks for something (tools, logprobs, `response_format`, `echo` ...), or `n` is above 1;
- a message has a part that is no text, a tool call, or a key besides `role`, `content` and `name`;
- `prompt` is a list of more than one prompt;
- the engine's answers are not plain (`Traits`): a reasoning parser, gpt-oss, usage with details.

The other routes have the full way only. Both ways give the same answer for the same plain body: a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from handler.engine.api_routes import Route, Traits
from handler.engine.engine import Engine
from handler.errors import InvalidBody, InvalidField, MissingField, UnsupportedTask
from handler.schemas import body_limits
from handler.schemas.framing import framed
from handler.schemas.openai import chat, completion
from handler.schemas.openai import vllm_path as full
from handler.schemas.openai.sampling_fields import FULL, asks_for
from handler.schemas.reply import AnyCall
from handler.schemas.tgi_lmi import inputs_body as inputs
from handler.schemas.tgi_lmi import request_options as asked_schemas
from handler.schemas.tgi_lmi.request_options import RequestOptions

Parse = Callable[[Mapping[str, Any], Engine], AnyCall]
PLAIN_KEYS: Final = frozenset({"role", "content", "name"})
# None is TGI or LMI.
BY_SCHEMA: Final[Mapping[str, Route | None]] = {
    asked_schemas.CHAT: Route.CHAT,
    asked_schemas.COMPLETION: Route.COMPLETIONS,
}
BY_KEY: Final[Mapping[str, Route | None]] = {"messages": Route.CHAT, "prompt": Route.COMPLETIONS, "inputs": None}
# Keys that other bodies have as well: they count where none of the above is there.
BY_LESSER_KEY: Final[Mapping[str, Route]] = {"input": Route.RESPONSES, "tokens": Route.DETOKENIZE}
FRAMED: Final[Mapping[Route, str]] = {
    Route.CHAT: asked_schemas.CHAT,
    Route.COMPLETIONS: asked_schemas.COMPLETION,
}
NO_HEADERS: Final[Mapping[str, str]] = {}


def parse(
    document: Mapping[str, Any],
    engine: Engine,
    asked: RequestOptions | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> AnyCall:
    """The call that a body of /invocations asks for.

    :raises ClientError: it has no prompt, more than one kind of prompt, or a field that is wrong.
    """
    asked = asked or RequestOptions()
    attribute = asked.attributes.get("route")
    if attribute:
        return parse_route(route_of(attribute), document, engine, headers)
    route = BY_SCHEMA.get(asked.schema) if asked.schema else by_key(document, engine.traits)
    if route is None:
        if engine.traits.pooling:
            raise UnsupportedTask("'inputs'", "makes embeddings and generates no text", "send 'input'")
        body_limits.check(document)
        return inputs.parse(document, engine, asked)
    call = parse_route(route, document, engine, headers)
    return framed(call, asked.framing(FRAMED[route])) if route in FRAMED else call


def parse_route(
    route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str] = NO_HEADERS
) -> AnyCall:
    """The call that a body of an OpenAI route asks for.

    :raises ClientError: naming the field.
    """
    body_limits.check(document)
    if not plain_path(route, document, engine.traits):
        return full.parse(route, document, engine, headers)
    return chat.parse(document, engine) if route is Route.CHAT else completion.parse(document, engine)


def plain_path(route: Route, document: Mapping[str, Any], traits: Traits) -> bool:
    """The short path serves this body. A pure function of its arguments."""
    if traits.pooling or not traits.plain_usage:
        return False
    if route is Route.CHAT:
        return traits.plain_chat and _plain_fields(document) and _plain_messages(document)
    if route is Route.COMPLETIONS:
        prompt = document.get("prompt")
        several = isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str | list)
        return not several and _plain_fields(document)
    return False


def fast_path_eligible(route: Route | None, document: Mapping[str, Any], traits: Traits) -> bool:
    """The short path serves this body, with one prompt, and nothing in it has to be compiled first.

    :param route: None: a body of /invocations, of which nothing but its keys says what it is.
    :raises ClientError: its keys leave it open.
    """
    route = route or by_key(document, traits)
    if route is not None:
        return plain_path(route, document, traits)
    parameters = document.get("parameters")
    return isinstance(document.get("inputs"), str) and not (isinstance(parameters, dict) and parameters.get("grammar"))


def by_key(document: Mapping[str, Any], traits: Traits) -> Route | None:
    """The route of a body of /invocations; None is TGI or LMI. A pure function of its arguments.

    :raises ClientError: its keys leave it open.
    """
    keys = [key for key in BY_KEY if key in document]
    if len(keys) > 1:
        raise InvalidBody(f"it has both '{keys[0]}' and '{keys[1]}'")
    if traits.pooling and (keys == ["messages"] or (not keys and "input" in document)):
        return Route.EMBEDDINGS
    if keys:
        return BY_KEY[keys[0]]
    for key, route in BY_LESSER_KEY.items():
        if key in document:
            return route
    raise MissingField(
        "messages", "send 'messages' (chat), 'prompt' (completion), 'inputs' (TGI, LMI) or 'input' (responses)"
    )


def route_of(attribute: str) -> Route:
    """The route that the custom attribute `route=` names.

    :raises InvalidField: none of ours.
    """
    try:
        return Route(attribute)
    except ValueError:
        known = ", ".join(Route)
        raise InvalidField("X-Amzn-SageMaker-Custom-Attributes", f"route= must be one of {known}") from None


def _plain_fields(document: Mapping[str, Any]) -> bool:
    if document.get("n") not in (None, 1):
        return False
    return not any(asks_for(name, value, FULL) for name, value in document.items())


def _plain_messages(document: Mapping[str, Any]) -> bool:
    messages = document.get("messages")
    return not isinstance(messages, list) or all(_plain(message) for message in messages)


def _plain(message: object) -> bool:
    """Also true of what is wrong with any path: the short path's account of it is the better one."""
    if not isinstance(message, dict) or message.get("role") not in chat.ROLES:
        return True
    if any(value not in (None, []) for key, value in message.items() if key not in PLAIN_KEYS):
        return False
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(not isinstance(part, dict) or part.get("type", "text") == "text" for part in content)
