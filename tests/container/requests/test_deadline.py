"""The limits of a request: which settings they come from, and what is derived where none is set."""

from __future__ import annotations

import pytest

from container.http.body_budget import max_body
from container.requests.deadline import deadline
from container.routes.execution_parameters import execution_parameters
from handler.config.endpoint_config import MIB, EndpointConfig
from handler.errors import InvalidField
from handler.startup.admission import max_in_flight


@pytest.mark.parametrize(
    ("settings", "stream", "seconds"),
    [
        ({}, False, 58),
        ({}, True, 478),
        ({"deadline": 5.0}, False, 5),
        ({"deadline": 5.0}, True, 478),
        ({"stream_deadline": 7.0}, True, 7),
        ({"asynchronous": True}, False, 890),
        ({"asynchronous": True}, True, 890),
        ({"batch_transform": True}, False, 590),
        ({"batch_transform": True, "deadline": 3590.0}, False, 3590),
    ],
)
def test_a_deadline_is_sagemaker_s_unless_it_is_set(settings: dict[str, object], stream: bool, seconds: float) -> None:
    config = EndpointConfig(**settings)  # type: ignore[arg-type]
    found = deadline(config, None, 100.0, stream=stream)
    assert (found.seconds, found.expires) == (seconds, 100 + seconds)


def test_the_header_decides_for_one_request() -> None:
    assert deadline(EndpointConfig(), "3600", 0.0, stream=False).seconds == 3600


@pytest.mark.parametrize("value", ["0", "3601", "-1", "1.5", "", "soon", "²", "9" * 5000, "000000001" + "9" * 400])
def test_a_header_that_is_no_time_is_named(value: str) -> None:
    with pytest.raises(InvalidField, match="X-Amzn-SageMaker-InvocationTimeoutSeconds"):
        deadline(EndpointConfig(), value, 0.0, stream=False)


def test_places_are_slots_and_queue() -> None:
    assert max_in_flight(EndpointConfig(), 16) == 1024
    assert max_in_flight(EndpointConfig(max_queue=0), 16) == 16
    assert max_in_flight(EndpointConfig(max_queue=4), 16) == 20
    assert max_in_flight(EndpointConfig(max_queue=4, max_concurrent=8), 16) == 8


@pytest.mark.parametrize(
    ("settings", "slots", "context", "expected"),
    [
        ({}, 16, 1024, (16, "SINGLE_RECORD", 6)),
        ({}, 32, 1024, (32, "SINGLE_RECORD", 3)),
        ({}, 256, 1024, (100, "SINGLE_RECORD", 1)),
        ({}, 64, 131072, (50, "SINGLE_RECORD", 2)),
        ({}, 64, 4_000_000, (16, "SINGLE_RECORD", 6)),
        ({"max_queue": 0, "max_concurrent": 3}, 16, 1024, (3, "SINGLE_RECORD", 6)),
        ({"max_payload_mb": 100, "max_concurrent_transforms": 8}, 16, 1024, (1, "SINGLE_RECORD", 100)),
        ({"batch_strategy": "MULTI_RECORD", "max_concurrent_transforms": 2}, 16, 1024, (2, "MULTI_RECORD", 1)),
        ({"max_payload_mb": 0, "max_concurrent_transforms": 0}, 16, 1024, (16, "SINGLE_RECORD", 6)),
    ],
)
def test_execution_parameters_are_what_the_engine_can_hold(
    settings: dict[str, object], slots: int, context: int, expected: tuple[int, str, int]
) -> None:
    found = execution_parameters(EndpointConfig(**settings), slots, context)  # type: ignore[arg-type]
    assert tuple(found.values()) == expected
    assert int(found["MaxConcurrentTransforms"]) * int(found["MaxPayloadInMB"]) <= 100


@pytest.mark.parametrize("strategy", [None, "MULTI_RECORD"])
def test_an_image_has_room_in_a_transform_job_s_body(strategy: str | None) -> None:
    found = execution_parameters(EndpointConfig(batch_strategy=strategy), 64, 1024, multimodal=True)
    assert (found["MaxConcurrentTransforms"], found["MaxPayloadInMB"]) == (16, 6)


def test_a_transform_job_s_payload_may_be_as_large_as_it_was_created_with() -> None:
    assert max_body(EndpointConfig(batch_transform=True, max_payload_mb=100)) == 100 * MIB
    assert max_body(EndpointConfig(max_payload_mb=100)) == 25 * MIB
    assert max_body(EndpointConfig(batch_transform=True, max_payload_mb=0)) == 100 * MIB
    assert max_body(EndpointConfig(batch_transform=True)) == 25 * MIB
