"""What became of a request's tokens, noted down in its record."""

from __future__ import annotations

from container.requests.request_record import RequestRecord
from container.streaming.sinks import BufferedSink, CollectingSink, QueueSink, StreamingSink
from container.telemetry.tracing.traced_call import heard
from handler.errors import EndpointError
from handler.schemas.framing import unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall


def streamed(
    record: RequestRecord,
    call: AnyCall,
    stream: StreamingSink | QueueSink,
    error: EndpointError | None,
    left: str | None,
) -> None:
    """Notes down what became of a stream."""
    record.first_token, record.last_token = stream.first_token, stream.last_token
    count(record, call, stream.tokens)
    record.end, record.left = stream.finish, left
    if error is not None:
        record.failed(error)


def answered(record: RequestRecord, call: AnyCall, answer: BufferedSink) -> None:
    """Notes down what became of a whole reply."""
    if answer.error is not None:
        record.failed(answer.error)
    elif isinstance(answer, CollectingSink):
        record.end = answer.stream.finish
        count(record, call, answer.stream.tokens)
    elif answer.output is not None:
        record.end = answer.output[2]
        count(record, call, len(answer.output[1]))
    if record.span is not None:
        heard(unframed(call), record)
    if answer.gone:
        record.left = "the client closed the connection"


def count(record: RequestRecord, call: AnyCall, seen: int) -> None:
    """Notes down a request's tokens.

    :param seen: tokens that the sink was given; where it was given documents, the call has counted them.
    """
    inner = unframed(call)
    if isinstance(inner, ServedCall | MultipleCall):
        record.prompt_tokens, record.output_tokens = inner.tokens.prompt, inner.tokens.output
    else:
        record.output_tokens = seen
