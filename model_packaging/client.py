"""A client of an endpoint, over plain boto3: it puts together what SageMaker cuts, and says what the container said.

    client = EndpointClient("my-endpoint")
    client.invoke({"messages": [{"role": "user", "content": "Hello"}]})          # the reply, as a dict
    for text in client.text({"messages": [...], "max_tokens": 100}):             # as it is generated
        print(text, end="", flush=True)
    client.invoke_async("s3://bucket/in/1.json")                # where the answer will be; `answer.py` waits for it

A streamed reply arrives in payload parts that SageMaker cuts wherever it likes: within an event, a JSON string, a
UTF-8 character. Here a part is only bytes, and an event is what an empty line ends ("Server-sent events", WHATWG HTML).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_sagemaker_runtime.client import SageMakerRuntimeClient

END = b"[DONE]"
# SageMaker waits for a streamed reply for 8 minutes; boto3 gives up after 60 s of silence, unless told otherwise.
READ_SECONDS = 500


class InvocationFailed(Exception):
    """The container answered with an error, or its stream ended in one.

    :ivar status: the container's HTTP status; 0 where SageMaker did not get one, None within a stream.
    :ivar error: the container's own error object: `message`, `type`, `param`, `code`.
    :ivar log: the ARN of the log stream, where SageMaker named it.
    """

    def __init__(self, error: Mapping[str, Any], status: int | None = None, log: str = "") -> None:
        self.error, self.status, self.log = dict(error), status, log
        super().__init__(str(self.error.get("message", "")))

    @property
    def code(self) -> str:
        return str(self.error.get("code") or "")


class StreamCut(InvocationFailed):
    """The stream ended before the container said that it was complete: what came is part of an answer."""

    def __init__(self, reason: str) -> None:
        super().__init__({"message": f"The stream was cut: {reason}", "type": "server_error", "code": "stream_cut"})


class EndpointClient:
    """One endpoint, as its caller sees it. Bodies are OpenAI's (chat, completion) or TGI's (`inputs`).

    :param component: the inference component, where the endpoint has several.
    :param connections: requests at a time.
    :param runtime: a boto3 client to use; by default one of its own. Region, credentials and address are boto3's
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

    def invoke(self, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """The whole reply. SageMaker gives up after 60 s: stream what may take longer.

        :param headers: further members of boto3's `invoke_endpoint`: SessionId="...", CustomAttributes="...".
        :raises InvocationFailed: the container refused, or failed.
        """
        reply = self._call(self._runtime.invoke_endpoint, body, headers)
        answer: dict[str, Any] = json.loads(reply["Body"].read())
        return answer

    def stream(self, body: Mapping[str, Any], **headers: str) -> Iterator[dict[str, Any]]:
        """The reply's events as they come: OpenAI's chunks, or TGI's tokens. Leaving the loop closes the connection.

        :raises InvocationFailed: the container refused, or the stream ended in an error of its own.
        :raises StreamCut: the stream broke off.
        """
        from botocore.exceptions import EventStreamError, HTTPClientError

        operation = self._runtime.invoke_endpoint_with_response_stream
        stream = self._call(operation, {**body, "stream": True}, headers)["Body"]
        complete = False
        try:
            for data in events(part["PayloadPart"]["Bytes"] for part in stream if "PayloadPart" in part):
                if data == END:
                    complete = True
                    continue
                event: dict[str, Any] = json.loads(data)
                if "error" in event:
                    raise _of_event(event)
                complete = complete or event.get("generated_text") is not None  # TGI's last event; it has no end mark
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
        """Only the text of the stream, of the first choice; raises as `stream` does."""
        for event in self.stream(body, **headers):
            if text := text_of(event):
                yield text

    def invoke_async(self, location: str, **headers: Any) -> dict[str, str]:
        """Queues a request whose body lies in S3, for an asynchronous endpoint.

        :return: `output` and `failure`, the places of which one will have an object; and `id`.
        """
        reply = self._runtime.invoke_endpoint_async(
            EndpointName=self._names["EndpointName"],
            InputLocation=location,
            ContentType="application/json",
            **headers,
        )
        places = {"output": "OutputLocation", "failure": "FailureLocation", "id": "InferenceId"}
        found: Mapping[str, Any] = reply
        return {name: str(found.get(member, "")) for name, member in places.items()}

    def _call(self, operation: Callable[..., Any], body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        from botocore.exceptions import ClientError

        data = json.dumps(body, ensure_ascii=False).encode()
        try:
            return operation(**self._names, ContentType="application/json", Body=data, **headers)
        except ClientError as error:
            raise _of_model(error) from error


def events(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each server-sent event, however the bytes were cut. What no empty line ends is no event."""
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


def text_of(event: Mapping[str, Any]) -> str:
    """The text that one event adds, or that a whole reply has."""
    if "token" in event:
        token = event["token"] or {}
        return "" if token.get("special") else str(token.get("text") or "")
    for choice in event.get("choices") or ():
        if not choice.get("index"):
            message = choice.get("delta") or choice.get("message") or choice
            return str(message.get("content") or message.get("text") or "")
    return str(event.get("generated_text") or "")


def failure_of(body: str, status: int | None = None, log: str = "") -> InvocationFailed:
    """Out of the body that the container refused with: its error object, or the words as they are."""
    try:
        found = json.loads(body).get("error")
    except (ValueError, AttributeError):
        found = None
    return InvocationFailed(found if isinstance(found, Mapping) else {"message": body}, status, log)


def _of_event(event: Mapping[str, Any]) -> InvocationFailed:
    error = event["error"]
    return InvocationFailed(error if isinstance(error, Mapping) else {"message": str(error)})


def _of_model(error: Any) -> Exception:
    """The container's own error out of a ModelError; any other error of SageMaker's as it is."""
    reply = error.response
    if reply.get("Error", {}).get("Code") != "ModelError":
        return error if isinstance(error, Exception) else InvocationFailed({"message": str(error)})
    original = str(reply.get("OriginalMessage") or reply["Error"].get("Message") or "")
    return failure_of(original, reply.get("OriginalStatusCode"), str(reply.get("LogStreamArn") or ""))


def _runtime(region: str | None, connections: int) -> SageMakerRuntimeClient:
    import boto3
    from botocore.config import Config

    # Not repeated: a generation that failed after a minute would cost another, and a 424 is the container's answer.
    config = Config(
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=connections,
    )
    return boto3.session.Session(region_name=region).client("sagemaker-runtime", config=config)
