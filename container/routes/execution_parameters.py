"""GET /execution-parameters: how batch transform should send its records, from the engine's capacity."""

from __future__ import annotations

from flask import Blueprint, Response

from container.http.body_budget import TRANSFORM_MB
from container.routes.json_views import reply
from container.service import Service
from handler.config.endpoint_config import MIB, EndpointConfig
from handler.startup.admission import max_in_flight

# Bytes that one token may take as JSON-escaped text: "\\u4f60\\u597d" is one token to many models.
MAX_TOKEN_BYTES = 12
# CreateTransformJob, MaxPayloadInMB.
DEFAULT_PAYLOAD_MB = 6


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("transform", __name__)

    @routes.get("/execution-parameters", endpoint="reply")
    def parameters() -> Response:
        engine = service.ready_engine()
        limits, multimodal = engine.limits, engine.traits.multimodal
        return reply(execution_parameters(service.config, engine.slots, limits.max_model_len, multimodal=multimodal))

    return routes


def execution_parameters(
    config: EndpointConfig, slots: int, max_model_len: int, *, multimodal: bool = False
) -> dict[str, int | str]:
    """The reply of GET /execution-parameters.

    One record in each body and one body for each slot keep the engine full, and a bad record affects no other. A job
    fails as a whole if one record is above the payload size. So the size is SageMaker's own default, as far as
    100 MB for all concurrent bodies allow, and never below the longest prompt. Bodies of several records are filled up
    to the size, so it is no more than that prompt's. An image alone may be larger than any prompt: it takes precedence
    over the number of concurrent bodies. SageMaker wants whole megabytes.
    The strategy is spelled as the guide's example spells it ("Custom inference code with batch transform").

    :param slots: sequences that the engine decodes concurrently.
    :param max_model_len: tokens.
    :param multimodal: records may have images, audio or video.
    """
    concurrent = max(1, config.max_concurrent_transforms or min(slots, max_in_flight(config, slots)))
    payload = config.max_payload_mb or DEFAULT_PAYLOAD_MB
    if not config.max_payload_mb and not multimodal:
        prompt = min(DEFAULT_PAYLOAD_MB, max(1, -(-max_model_len * MAX_TOKEN_BYTES // MIB)))
        filled = config.batch_strategy == "MULTI_RECORD"
        payload = prompt if filled else max(prompt, min(DEFAULT_PAYLOAD_MB, TRANSFORM_MB // concurrent))
    return {
        "MaxConcurrentTransforms": min(concurrent, TRANSFORM_MB // payload),
        "BatchStrategy": config.batch_strategy or "SINGLE_RECORD",
        "MaxPayloadInMB": payload,
    }
