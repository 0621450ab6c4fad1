"""What is known of one request, from its first byte to its reply's last: what the log and the figures tell of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from container.requests import custom_attributes as attributes
from handler.errors import EndpointError
from handler.schemas.framing import unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, Call
from handler.sessions.session_errors import HEADER as SESSION_HEADER

# Where a request's record is in its WSGI environment.
KEY = "endpoint.record"
# What SageMaker gives an invocation, and what clients put into the custom attributes.
INFERENCE_ID = "HTTP_X_AMZN_SAGEMAKER_INFERENCE_ID"
TRACE_KEYS = ("trace_id", "traceid", "trace-id", "x-amzn-trace-id")
INFERENCE_KEYS = ("inference_id", "inferenceid", "inference-id")
LONGEST_ID = 256
LONGEST_ATTRIBUTES = 1024
# Other headers of SageMaker, and their names in the log.
HEADERS: Mapping[str, str] = {
    "X-Amzn-SageMaker-Target-Variant": "target_variant",
    "X-Amzn-SageMaker-Inference-Component": "inference_component",
    "X-Amzn-SageMaker-Adapter-Identifier": "adapter",
    "X-Amzn-SageMaker-Target-Model": "target_model",
    SESSION_HEADER: "session_id",
}


class RequestRecord:
    """One request. Times in monotonic seconds; None where it is not known.

    :ivar route: the route's rule, never the path: there are only so many.
    :ivar prompt_tokens, output_tokens: of all its prompts and sequences; on the full path they are known at its end.
    :ivar first_token, last_token: when a stream's were handed to the connection.
    :ivar span: OpenTelemetry's, where traces are wanted; `trace` names it to others, `asked` is what the body asks for.
    :ivar times: when the request was queued, scheduled, had its first and its last token, as the engine's core tells.
    :ivar end: the engine's finish reason, an error's code, or `client_left`.
    """

    __slots__ = (
        "asked",
        "attributes",
        "began",
        "end",
        "error",
        "first_token",
        "headers",
        "inference_id",
        "last_token",
        "left",
        "method",
        "output_tokens",
        "prompt_tokens",
        "request_id",
        "route",
        "span",
        "status",
        "stream",
        "times",
        "trace",
        "trace_id",
    )

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self.began = time.monotonic()
        self.method = str(environ.get("REQUEST_METHOD", ""))
        self.route = "(none)"
        self.status = 0
        self.request_id = ""
        self.stream = False
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.end: str | None = None
        self.error: str | None = None
        self.left: str | None = None
        self.span: object | None = None
        self.trace: dict[str, str] = {}
        self.asked: Mapping[str, Any] = {}
        self.times: tuple[float, ...] | None = None
        given = attributes.parse(environ.get(attributes.ENVIRON, "")[:LONGEST_ATTRIBUTES])
        self.attributes = dict(given)
        self.headers = {
            name: header[:LONGEST_ID]
            for key, name in HEADERS.items()
            if (header := environ.get(f"HTTP_{key.upper().replace('-', '_')}"))
        }
        self.trace_id = _first(given, TRACE_KEYS) or _bounded(_trace_of(environ.get("HTTP_TRACEPARENT")))
        self.inference_id = _bounded(environ.get(INFERENCE_ID)) or _first(given, INFERENCE_KEYS)

    def called(self, call: AnyCall) -> None:
        """What the body asks for is known."""
        self.stream = call.stream
        call = unframed(call)
        if isinstance(call, Call):
            self.request_id = call.generation.request_id
            self.prompt_tokens = len(call.generation.prompt)
        elif isinstance(call, MultipleCall):
            self.request_id = call.generations[0].request_id
            self.prompt_tokens = sum(len(one.prompt) for one in call.generations)
        elif isinstance(call, ServedCall):
            self.named()

    def timed(self, queued: float, scheduled: float, first_token: float, last_token: float) -> None:
        """`generation.Times`."""
        self.times = (queued, scheduled, first_token, last_token)

    def named(self) -> None:
        """A request without an id of its own gets one."""
        self.request_id = self.request_id or uuid.uuid4().hex

    def failed(self, error: EndpointError) -> None:
        self.error = error.code  # not its message, which may repeat what the client sent
        self.end = type(error).__name__

    def seconds(self) -> float:
        """Since its headers came."""
        return time.monotonic() - self.began

    @property
    def first_token_seconds(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.began

    @property
    def between_tokens(self) -> float | None:
        """Mean seconds between two tokens of a stream."""
        first, last, tokens = self.first_token, self.last_token, self.output_tokens or 0
        return (last - first) / (tokens - 1) if first is not None and last is not None and tokens > 1 else None


def record_of(environ: Mapping[str, Any]) -> RequestRecord:
    """The request's record; one that nobody reads where there is no `Observed` around the application."""
    found = environ.get(KEY)
    return found if isinstance(found, RequestRecord) else RequestRecord(environ)


def _first(given: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((_bounded(given[key]) for key in keys if given.get(key)), None)


def _trace_of(traceparent: str | None) -> str | None:
    """The trace id in W3C's `version-trace-parent-flags`."""
    parts = (traceparent or "").split("-")
    return parts[1] if len(parts) >= 4 else None


def _bounded(given: str | None) -> str | None:
    return given[:LONGEST_ID] if given else None
