"""What a request's span shows: the call's stages, which go into its record, and attributes.

They are named by OpenTelemetry's conventions for HTTP servers and generative AI. They contain no text
of a prompt or a reply, and no error message.
Source: OpenTelemetry semantic conventions, "HTTP spans" and "Generative client AI spans".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from container.requests.request_record import RequestRecord
from handler.engine.generation.generation import Generation
from handler.schemas.framing import WrappedCall, unframed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.chat import ChatReply
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import AnyCall, Call

Value = str | int | float | bool | list[str]
PROVIDER = "vllm"
CHAT, TEXT, EMBEDDINGS = "chat", "text_completion", "embeddings"
OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": CHAT,
    "/v1/completions": TEXT,
    "/v1/embeddings": EMBEDDINGS,
}


def traced_call(call: AnyCall, record: RequestRecord, model: str) -> AnyCall:
    """The call, with callbacks and trace context, for a request that has a span.

    :param model: the model that answers if the body names none.
    """
    record.span_attributes = request_attributes(unframed(call), model)
    return _traced(call, record)


def _traced(call: AnyCall, record: RequestRecord) -> AnyCall:
    def with_trace(generation: Generation) -> Generation:
        return replace(generation, times=record.set_times, trace=record.trace)

    if isinstance(call, WrappedCall):
        return replace(call, call=_traced(call.call, record))
    if isinstance(call, Call):
        return replace(call, generation=with_trace(call.generation))
    if isinstance(call, MultipleCall):
        return replace(call, generations=tuple(with_trace(generation) for generation in call.generations))
    return call


def request_attributes(call: AnyCall, model: str) -> dict[str, Value]:
    """Attributes that are known from the request's body.

    :param model: the model that answers if the body names none.
    """
    if isinstance(call, ServedCall):
        attributes: dict[str, Value | None] = {
            "gen_ai.operation.name": OPERATIONS.get(call.route),
            "gen_ai.request.model": call.model or None,
        }
    elif isinstance(call, Call):
        attributes = _of_generation(call.generation, CHAT if isinstance(call.reply, ChatReply) else TEXT)
    elif isinstance(call, MultipleCall):
        attributes = _of_generation(call.generations[0], TEXT)
    else:
        return {}
    if call.stream:
        attributes["gen_ai.request.stream"] = True
    attributes["gen_ai.provider.name"] = PROVIDER
    attributes["gen_ai.response.model"] = attributes["gen_ai.request.model"] or model
    return {name: value for name, value in attributes.items() if value is not None}


def _of_generation(generation: Generation, operation: str) -> dict[str, Value | None]:
    sampling = generation.sampling
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": generation.model or None,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty or None,
        "gen_ai.request.presence_penalty": sampling.presence_penalty or None,
    }


def reply_attributes(document: object) -> dict[str, Value]:
    """Attributes from a whole reply of vLLM's serving classes."""
    usage = getattr(document, "usage", None)
    reasons = [getattr(choice, "finish_reason", None) for choice in getattr(document, "choices", None) or ()]
    attributes: dict[str, Value | None] = {
        "gen_ai.usage.input_tokens": _first(usage, "prompt_tokens", "input_tokens"),
        "gen_ai.usage.output_tokens": _first(usage, "completion_tokens", "output_tokens"),
        "gen_ai.response.finish_reasons": [str(reason) for reason in reasons if reason] or None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _first(usage: object, *names: str) -> int | None:
    return next((value for name in names if isinstance(value := getattr(usage, name, None), int)), None)


def attributes_of(record: RequestRecord) -> dict[str, Value]:
    """All attributes of a request at its end."""
    first = record.first_token_seconds
    attributes: dict[str, Value | None] = {
        "http.request.method": record.method,
        "http.route": record.route,
        "http.response.status_code": record.status or None,
        "gen_ai.response.id": record.request_id or None,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "aws.sagemaker.inference_id": record.inference_id,
        "endpoint.first_token_seconds": None if first is None else round(first, 4),
        "endpoint.left": record.left,
    }
    if record.error is not None:
        attributes["error.type"] = record.error
    # Ids of plain replies have a hyphen. For vLLM's serving classes `reply_attributes` has the finish reasons.
    elif record.end is not None and "-" in record.request_id:
        attributes["gen_ai.response.finish_reasons"] = [record.end]
    return {**record.span_attributes, **{name: value for name, value in attributes.items() if value is not None}}


def failed(record: RequestRecord) -> bool:
    """Whether the request failed by the endpoint's fault. A client's error is no failure."""
    return record.status >= 500 or (record.error is not None and record.status == 200)
