"""The record of a call's end."""

from __future__ import annotations

from container.inference.sinks import CallSink
from container.requests.request_record import RequestRecord
from container.telemetry.tracing.traced_call import record_reply
from handler.schemas.framing import unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall


def record_outcome(record: RequestRecord, call: AnyCall, sink: CallSink) -> None:
    """Writes the end of a call into its request's record: times, tokens, finish reason, error, client that left."""
    record.first_token, record.last_token = sink.first_token, sink.last_token
    record.end, record.left = sink.finish, sink.left_reason or record.left
    inner, tokens = unframed(call), sink.tokens
    if tokens is not None and isinstance(inner, ServedCall | MultipleCall):  # these have counted their own tokens
        record.prompt_tokens, record.output_tokens = inner.tokens.prompt, inner.tokens.output
    elif tokens is not None:
        record.output_tokens = tokens
    if sink.error is not None:
        record.failed(sink.error)
    if record.span is not None:
        record_reply(inner, record)
