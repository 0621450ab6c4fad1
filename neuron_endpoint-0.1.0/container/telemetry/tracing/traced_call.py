"""Connects a call with its request's span: its stages go into the record, and vLLM gets the trace context."""

from __future__ import annotations

from dataclasses import replace

from container.requests.request_record import RequestRecord
from container.telemetry.tracing.span_attributes import reply_attributes, request_attributes
from handler.engine.generation.generation import Generation
from handler.schemas.framing import WrappedCall, unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, Call


def traced_call(call: AnyCall, record: RequestRecord, model: str) -> AnyCall:
    """The call, with callbacks and trace context, for a request that has a span.

    :param model: the model that answers if the body names none.
    """
    record.span_attributes = request_attributes(unframed(call), model)
    return _traced(call, record)


def record_reply(call: AnyCall, record: RequestRecord) -> None:
    """Adds the attributes of the reply to the span."""
    if isinstance(call, ServedCall):
        record.span_attributes = {**record.span_attributes, **reply_attributes(call.reply.document)}


def _traced(call: AnyCall, record: RequestRecord) -> AnyCall:
    def with_trace(generation: Generation) -> Generation:
        return replace(generation, times=record.set_times, trace=record.trace)

    if isinstance(call, WrappedCall):
        return replace(call, call=_traced(call.call, record))
    if isinstance(call, Call):
        return replace(call, generation=with_trace(call.generation))
    if isinstance(call, MultipleCall):
        return replace(call, generations=tuple(with_trace(one) for one in call.generations))
    return call
