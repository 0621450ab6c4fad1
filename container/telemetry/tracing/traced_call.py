"""A call whose stages are told to its request's record, and whose trace context vLLM knows."""

from __future__ import annotations

from dataclasses import replace

from container.requests.request_record import RequestRecord
from container.telemetry.tracing.span_attributes import answered, asked
from handler.engine.generation.generation import Generation
from handler.schemas.framing import LinesCall, unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, Call


def followed(call: AnyCall, record: RequestRecord, model: str) -> AnyCall:
    """The call for a request that has a span.

    :param model: that answers where the body names none.
    """
    record.asked = asked(unframed(call), model)
    if isinstance(call, LinesCall):
        return replace(call, call=_followed(call.call, record))
    return _followed(call, record)


def heard(call: AnyCall, record: RequestRecord) -> None:
    """The whole reply of a request that has a span is there."""
    if isinstance(call, ServedCall):
        record.asked = {**record.asked, **answered(call.reply.document)}


def _followed(call: AnyCall, record: RequestRecord) -> AnyCall:
    def with_trace(generation: Generation) -> Generation:
        return replace(generation, times=record.timed, trace=record.trace)

    if isinstance(call, Call):
        return replace(call, generation=with_trace(call.generation))
    if isinstance(call, MultipleCall):
        return replace(call, generations=tuple(with_trace(one) for one in call.generations))
    return call
