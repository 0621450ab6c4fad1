"""The record of one request: the ids, times, token counts and the end that log, metrics and traces report."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from container.requests import custom_attributes
from handler.errors import EndpointError
from handler.schemas.framing import ignored_fields, unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, Call

# The key of a request's record in its WSGI environment.
KEY = "endpoint.record"
# The routes that SageMaker, scrapers and the page request every few seconds. They are neither logged nor traced.
POLLED = frozenset(("/ping", "/health", "/metrics", "/page/state", "/page/requests"))
# The header that SageMaker sets, and the keys that clients use in the custom attributes.
INFERENCE_ID = "HTTP_X_AMZN_SAGEMAKER_INFERENCE_ID"
TRACE_KEYS = ("trace_id", "traceid", "trace-id", "x-amzn-trace-id")
INFERENCE_KEYS = ("inference_id", "inferenceid", "inference-id")
MAX_ID = 256
# The end of a request that the next serving process answers. Nobody got a reply of this one.
HANDED_OVER = "handed_over"
MAX_ATTRIBUTES = 1024
# The reply's header with the fields of the body that have no effect.
IGNORED_HEADER = "X-Endpoint-Ignored-Fields"
# More headers of SageMaker, and their field names in the log.
HEADERS: Mapping[str, str] = {
    "HTTP_X_AMZN_SAGEMAKER_TARGET_VARIANT": "target_variant",
    "HTTP_X_AMZN_SAGEMAKER_INFERENCE_COMPONENT": "inference_component",
    "HTTP_X_AMZN_SAGEMAKER_ADAPTER_IDENTIFIER": "adapter",
    "HTTP_X_AMZN_SAGEMAKER_ADAPTER_ALIAS": "adapter_alias",
    "HTTP_X_AMZN_SAGEMAKER_TARGET_MODEL": "target_model",
    "HTTP_X_AMZN_SAGEMAKER_SESSION_ID": "session_id",
}


@dataclass(slots=True, eq=False, repr=False)
class RequestRecord:
    """One request. Times are in monotonic seconds. None means unknown.

    :ivar route: the route's rule, never the path: the number of rules is limited.
    :ivar prompt_tokens, output_tokens: sums over all prompts and sequences. With vLLM's serving classes they are known
        at the end.
    :ivar one_sequence: the request has one prompt, and asks for one sequence.
    :ivar first_token, last_token: when a stream's first and last token were written to the connection.
    :ivar error: the error's code. Its message is not recorded: it may repeat what the client sent.
    :ivar left: how the client left before the end.
    :ivar span: OpenTelemetry's span; None without tracing.
    :ivar trace: the span's trace context, as headers.
    :ivar span_attributes: attributes for the span that are known from the body.
    :ivar times: when the request was queued, scheduled, and had its first and its last token, from the engine's core.
    :ivar end: the engine's finish reason, or the class of the error.
    :ivar body, body_digest: kept in case the engine dies: the body, or of a large one its digest.
    :ivar may_rerun: the next engine may run the request if this one dies before anything was sent.
    :ivar ignored: the fields of the body that have no effect.
    :ivar of_message: the body is one of Anthropic's API.
    """

    environ: InitVar[Mapping[str, Any]]
    began: float = field(default_factory=time.monotonic)
    route: str = "(none)"
    status: int = 0
    request_id: str = ""
    stream: bool = False
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    one_sequence: bool = False
    first_token: float | None = None
    last_token: float | None = None
    end: str | None = None
    error: str | None = None
    left: str | None = None
    span: object | None = None
    trace: dict[str, str] = field(default_factory=dict)
    span_attributes: Mapping[str, Any] = field(default_factory=dict)
    times: tuple[float, ...] | None = None
    body: bytes = b""
    body_digest: str = ""
    may_rerun: bool = False
    ignored: tuple[str, ...] = ()
    of_message: bool = False
    method: str = field(init=False)
    attributes: dict[str, str] = field(init=False)
    headers: dict[str, str] = field(init=False)
    trace_id: str | None = field(init=False)
    inference_id: str | None = field(init=False)

    def __post_init__(self, environ: Mapping[str, Any]) -> None:
        self.method = str(environ.get("REQUEST_METHOD", ""))
        self.attributes = custom_attributes.parse(environ.get(custom_attributes.ENVIRON, "")[:MAX_ATTRIBUTES])
        self.headers = {
            name: header[:MAX_ID] for variable, name in HEADERS.items() if (header := environ.get(variable))
        }
        self.trace_id = _first(self.attributes, TRACE_KEYS) or _truncated(_trace_of(environ.get("HTTP_TRACEPARENT")))
        self.inference_id = _truncated(environ.get(INFERENCE_ID)) or _first(self.attributes, INFERENCE_KEYS)

    def parsed(self, call: AnyCall) -> None:
        """Records the ids and prompt tokens of the call that the body was parsed to."""
        self.stream, self.ignored, self.of_message = call.stream, ignored_fields(call), call.reply.of_message
        call = unframed(call)
        if isinstance(call, Call):
            self.request_id = call.generation.request_id
            self.prompt_tokens, self.one_sequence = len(call.generation.prompt), True
        elif isinstance(call, MultipleCall):
            self.request_id = call.generations[0].request_id
            self.prompt_tokens = sum(len(generation.prompt) for generation in call.generations)
        elif isinstance(call, ServedCall):
            self.assign_id()

    def set_times(self, queued: float, scheduled: float, first_token: float, last_token: float) -> None:
        """Records the stages of the generation (`generation.Times`)."""
        self.times = (queued, scheduled, first_token, last_token)

    def assign_id(self) -> None:
        """Assigns an id to a request that has none."""
        self.request_id = self.request_id or uuid.uuid4().hex

    def failed(self, error: EndpointError) -> None:
        """Records an error as the end."""
        self.error = error.code
        self.end = type(error).__name__

    def seconds(self) -> float:
        """Seconds since the headers arrived."""
        return time.monotonic() - self.began

    @property
    def ignored_header(self) -> tuple[tuple[str, str], ...]:
        return ((IGNORED_HEADER, ", ".join(self.ignored)),) if self.ignored else ()

    @property
    def first_token_seconds(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.began

    @property
    def between_tokens(self) -> float | None:
        """Mean seconds between two tokens of a complete stream; None if there are fewer than two."""
        first, last, tokens = self.first_token, self.last_token, self.output_tokens or 0
        return (last - first) / (tokens - 1) if first is not None and last is not None and tokens > 1 else None


def record_of(environ: Mapping[str, Any]) -> RequestRecord:
    """The request's record. Without an observer around the application: a new one that nobody reads."""
    record = environ.get(KEY)
    return record if isinstance(record, RequestRecord) else RequestRecord(environ)


def _first(pairs: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((_truncated(pairs[key]) for key in keys if pairs.get(key)), None)


def _trace_of(traceparent: str | None) -> str | None:
    """The trace id in W3C's `version-trace-parent-flags` format."""
    parts = (traceparent or "").split("-")
    return parts[1] if len(parts) >= 4 else None


def _truncated(text: str | None) -> str | None:
    return text[:MAX_ID] if text else None
