"""A client for an endpoint over plain boto3. It joins the payload parts of a stream, and raises the container's errors.

    client = EndpointClient("my-endpoint")
    client.invoke({"messages": [{"role": "user", "content": "Hello"}]})          # the reply, as a dict
    for text in client.text({"messages": [...], "max_tokens": 100}):             # as it is generated
        print(text, end="", flush=True)
    client.invoke_async("s3://bucket/in/1.json")                # the reply's place; `async_reply.py` waits for it

SageMaker may cut a streamed reply into payload parts at any byte: within an event, a JSON string or a UTF-8 character.
So the parts are joined, and an event ends at an empty line ("Server-sent events", WHATWG HTML).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_sagemaker_runtime.client import SageMakerRuntimeClient

END = b"[DONE]"
# The last events of Anthropic's messages and of OpenAI's responses, which have no other end mark.
LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete")
EVENTS, LINES = "text/event-stream", "application/jsonlines"
# SageMaker is said to wait 8 minutes for a streamed reply (no source of its own). boto3's default is to give up after
# 60 s without data.
READ_SECONDS = 500


class InvocationFailed(Exception):
    """The container answered with an error, or its stream ended in one.

    :ivar status: the container's HTTP status. 0 if SageMaker received none, None for an error within a stream.
    :ivar error: the container's own error object: `message`, `type`, `param`, `code`.
    :ivar log: the ARN of the log stream, if SageMaker named it.
    """

    def __init__(self, error: Mapping[str, Any], status: int | None = None, log: str = "") -> None:
        self.error, self.status, self.log = dict(error), status, log
        super().__init__(str(self.error.get("message", "")))

    @property
    def code(self) -> str:
        return str(self.error.get("code") or "")


class StreamCut(InvocationFailed):
    """The stream ended without its end mark. The received text is incomplete."""

    def __init__(self, reason: str) -> None:
        super().__init__({"message": f"The stream was cut: {reason}", "type": "server_error", "code": "stream_cut"})


class NotJson(InvocationFailed):
    """The reply, or a part of it, is not a JSON document, or in a stream not an object."""

    def __init__(self, data: bytes) -> None:
        shown = data[:200].decode(errors="replace")
        super().__init__({"message": f"The reply is not JSON: {shown}", "type": "server_error", "code": "not_json"})


class EndpointClient:
    """A client of one endpoint. Bodies are those of OpenAI and Anthropic, or of TGI and LMI (`inputs`).

    :param component: the inference component, if the endpoint has several.
    :param connections: the largest number of concurrent requests.
    :param runtime: the boto3 client to use. The default is a new one. Region, credentials and address are boto3's
        (`AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME` for an endpoint on this machine).
    """

    def __init__(
        self,
        endpoint: str,
        *,
        component: str | None = None,
        region: str | None = None,
        connections: int = 10,
        runtime: SageMakerRuntimeClient | None = None,
    ) -> None:
        self._names: dict[str, Any] = {"EndpointName": endpoint}
        if component:
            self._names["InferenceComponentName"] = component
        self._runtime = runtime or _runtime(region, connections)

    def invoke(self, body: Mapping[str, Any], **headers: str) -> Any:
        """Returns the whole reply: an object, or TGI's list of them.

        SageMaker gives up after 60 s: use `stream` for replies that may take longer.

        :param headers: further parameters of boto3's `invoke_endpoint`: SessionId="...", CustomAttributes="...".
        :raises InvocationFailed: the container rejected the request or failed, or the reply is not JSON.
        """
        whole = {**body, "stream": False} if body.get("stream") else body
        reply = self._call(self._runtime.invoke_endpoint, whole, headers)
        return document_of(reply["Body"].read())

    def stream(self, body: Mapping[str, Any], **headers: str) -> Iterator[dict[str, Any]]:
        """Yields the reply's events: OpenAI's chunks or the tokens of `inputs`. Leaving the loop closes the connection.

        They come as server-sent events or, if the endpoint is set so, as JSON lines. A reply that is no stream is one.

        :raises InvocationFailed: the container rejected the request, the stream ended with an error or is not JSON.
        :raises StreamCut: the stream ended without its end mark. JSON lines have none but the body's end.
        """
        from botocore.exceptions import EventStreamError, HTTPClientError

        operation = self._runtime.invoke_endpoint_with_response_stream
        # Without it, LMI's schema streams JSON lines.
        reply = self._call(operation, {**body, "stream": True}, {"Accept": EVENTS, **headers})
        stream, kind = reply["Body"], reply.get("ContentType", EVENTS)
        complete = EVENTS not in kind
        try:
            for event in documents(kind, (part["PayloadPart"]["Bytes"] for part in stream if "PayloadPart" in part)):
                if event is None:
                    complete = True
                    continue
                complete |= event.get("generated_text") is not None  # that of `inputs`; it has no end mark
                complete |= event.get("type") in LAST_EVENTS
                yield event
        except EventStreamError as error:
            raise StreamCut(str(error.response.get("Error", {}).get("Message") or error)) from error
        except HTTPClientError as error:
            raise StreamCut(f"{type(error).__name__}: {error}") from error
        finally:
            stream.close()
        if not complete:
            raise StreamCut("it ended without its end mark")

    def text(self, body: Mapping[str, Any], **headers: str) -> Iterator[str]:
        """Yields the text of the first choice. Raises the errors of `stream`."""
        for event in self.stream(body, **headers):
            if text := text_of(event):
                yield text

    def invoke_async(self, location: str, **headers: Any) -> dict[str, str]:
        """Sends a request to an asynchronous endpoint. Its body is an object in S3.

        :param headers: further parameters of boto3's `invoke_endpoint_async`. SageMaker's own default of
            InvocationTimeoutSeconds is 900, and `deploy --async-seconds` sets what the container allows.
        :return: `output` and `failure`: the URIs of which one will have an object. `id`: the request's id.
        """
        reply = self._runtime.invoke_endpoint_async(
            EndpointName=self._names["EndpointName"],
            InputLocation=location,
            ContentType="application/json",
            **headers,
        )
        places = {"output": "OutputLocation", "failure": "FailureLocation", "id": "InferenceId"}
        members: Mapping[str, Any] = reply
        return {name: str(members.get(member, "")) for name, member in places.items()}

    def _call(self, operation: Callable[..., Any], body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        from botocore.exceptions import ClientError

        data = json.dumps(body, ensure_ascii=False).encode()
        try:
            return operation(**self._names, ContentType="application/json", Body=data, **headers)
        except ClientError as error:
            raise _of_model(error) from error


def events(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the data of each server-sent event, however the bytes were cut. An event ends at an empty line."""
    rest, data = b"", []
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []


def documents(kind: str, parts: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """Yields the JSON objects of a reply, and None for its end mark.

    :param kind: the reply's content type.
    :raises InvocationFailed: one is an error.
    :raises NotJson: one is no JSON object.
    """
    for data in events(parts) if EVENTS in kind else lines(parts) if LINES in kind else [b"".join(parts)]:
        if data == END:
            yield None
            continue
        document = document_of(data)
        for event in document if isinstance(document, list) else [document]:
            if not isinstance(event, dict):
                raise NotJson(data)
            response = event.get("response")  # of OpenAI's responses
            if error := event.get("error") or (response.get("error") if isinstance(response, dict) else None):
                raise InvocationFailed(error if isinstance(error, Mapping) else {"message": str(error)})
            yield event


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yields each line that is not empty, however the bytes were cut."""
    rest = b""
    for part in chain(parts, (b"\n",)):
        *whole, rest = (rest + part).split(b"\n")
        yield from filter(bytes.strip, whole)


def document_of(data: bytes) -> Any:
    """Returns the JSON document.

    :raises NotJson: it is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise NotJson(data) from None


def text_of(event: Any) -> str:
    """Returns the text of an event or of a whole reply: of the first choice of a chat or completion, of a message or
    response. Texts of several replies are on lines of their own.
    """
    if isinstance(event, list):
        return "\n".join(map(text_of, event))
    fields = _fields(event)
    if "token" in fields:
        token = _fields(fields["token"])
        return "" if token.get("special") else str(token.get("text") or "")
    for choice in _choices(event):
        if not choice.get("index"):
            message = _fields(choice.get("delta") or choice.get("message") or choice)
            return str(message.get("content") or message.get("text") or "")
    match fields:
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
    return _text_of_blocks([fields, *_list(fields.get("output"))]) or str(fields.get("generated_text") or "")


def has_further_choices(event: Any) -> bool:
    return any(choice.get("index") for choice in _choices(event))


def _choices(event: Any) -> list[Mapping[str, Any]]:
    return [_fields(choice) for choice in _list(_fields(event).get("choices"))]


def _text_of_blocks(messages: list[Any]) -> str:
    """Returns the texts of the content blocks of whole messages, Anthropic's or those of a response's output."""
    blocks = [_fields(block) for message in messages for block in _list(_fields(message).get("content"))]
    return "".join(str(block.get("text") or "") for block in blocks if block.get("type") in ("text", "output_text"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def failure_of(body: str, status: int | None = None, log: str = "") -> InvocationFailed:
    """Returns the error of a reply's body: its error object, or the whole body as the message."""
    try:
        problem = json.loads(body).get("error")
    except (ValueError, AttributeError):
        problem = None
    return InvocationFailed(problem if isinstance(problem, Mapping) else {"message": body}, status, log)


def _of_model(error: Any) -> Exception:
    """Returns the container's error from a ModelError. Other errors of SageMaker are returned unchanged."""
    reply = error.response
    if reply.get("Error", {}).get("Code") != "ModelError":
        return error if isinstance(error, Exception) else InvocationFailed({"message": str(error)})
    original = str(reply.get("OriginalMessage") or reply["Error"].get("Message") or "")
    return failure_of(original, reply.get("OriginalStatusCode"), str(reply.get("LogStreamArn") or ""))


def _runtime(region: str | None, connections: int) -> SageMakerRuntimeClient:
    import boto3
    from botocore.config import Config

    # No retries: a generation that failed after a minute would cost a second one, and a 424 is the container's reply.
    config = Config(
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=connections,
    )
    return boto3.session.Session(region_name=region).client("sagemaker-runtime", config=config)
