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


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("transform", __name__)

    @routes.get("/execution-parameters", endpoint="reply")
    def parameters() -> Response:
        engine = service.ready_engine()
        return reply(execution_parameters(service.config, engine.slots, engine.limits.max_model_len))

    return routes


def execution_parameters(config: EndpointConfig, slots: int, max_model_len: int) -> dict[str, int | str]:
    """The reply of GET /execution-parameters.

    One record in each body and one body for each slot keep the engine full, and a bad record affects no other. A body
    may be as large as the longest prompt. SageMaker wants whole megabytes, and 100 MB at most for concurrent bodies.
    The strategy is spelled as the guide's example spells it ("Custom inference code with batch transform").

    :param slots: sequences that the engine decodes concurrently.
    :param max_model_len: tokens.
    """
    payload = config.max_payload_mb or min(6, max(1, -(-max_model_len * MAX_TOKEN_BYTES // MIB)))
    concurrent = config.max_concurrent_transforms or min(slots, max_in_flight(config, slots))
    return {
        "MaxConcurrentTransforms": max(1, min(concurrent, TRANSFORM_MB // payload)),
        "BatchStrategy": config.batch_strategy or "SINGLE_RECORD",
        "MaxPayloadInMB": payload,
    }
