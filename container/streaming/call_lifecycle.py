"""The two steps that every request to the engine shares after it was parsed: begin the call, then record its outcome.

The step before them, from a body to a call with a deadline, is `container.pipeline.request_pipeline.parse_call`.
"""

from __future__ import annotations

from collections.abc import Callable

from container.requests.error_responses import unexpected
from container.requests.http_limits import Deadline
from container.requests.request_record import RequestRecord
from container.streaming.sinks import BufferedSink, QueueSink, StreamingSink
from container.streaming.websocket_sink import WebSocketSink
from container.telemetry.tracing.traced_call import record_reply
from handler.schemas.framing import unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, RunningCall

RecordedSink = BufferedSink | StreamingSink | QueueSink | WebSocketSink


def begin_call(running: RunningCall, deadline: Deadline, prepare: Callable[[], object] | None = None) -> None:
    """Begins a call. Runs on the engine's loop.

    An unexpected error becomes the call's own error: somebody waits for the end of this call.

    :param prepare: called first.
    """
    try:
        if prepare is not None:
            prepare()
        running.begin(deadline.remaining(), deadline.error())
    except Exception as error:
        running.fail(unexpected(error))


def record_outcome(record: RequestRecord, call: AnyCall, sink: RecordedSink) -> None:
    """Writes the end of a call into its request's record: times, tokens, finish reason, error, client that left."""
    record.first_token, record.last_token = sink.first_token, sink.last_token
    record.end, record.left = sink.finish, sink.left_reason
    inner, tokens = unframed(call), sink.tokens
    if tokens is not None and isinstance(inner, ServedCall | MultipleCall):  # these have counted their own tokens
        record.prompt_tokens, record.output_tokens = inner.tokens.prompt, inner.tokens.output
    elif tokens is not None:
        record.output_tokens = tokens
    if sink.error is not None:
        record.failed(sink.error)
    if record.span is not None:
        record_reply(inner, record)
