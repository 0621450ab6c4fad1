"""SageMaker's custom attributes: pairs between semicolons, which come back with the reply. The log: ../telemetry."""

from __future__ import annotations

import pytest
from werkzeug.test import Client

from container.requests.custom_attributes import parse


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        (None, {}),
        ("", {}),
        (";;", {}),
        ("route=/v1/responses", {"route": "/v1/responses"}),
        ("Trace-Id=1-2-3; Route=/tokenize ;", {"trace-id": "1-2-3", "route": "/tokenize"}),
        ("a=b=c", {"a": "b=c"}),
        ("accept_eula", {"accept_eula": ""}),
        ('a="b"', {"a": "b"}),
        ("a=1;a=2", {"a": "2"}),
        ("=1", {}),
        ("7f3c6d9a-trace", {"7f3c6d9a-trace": ""}),
    ],
)
def test_pairs(header: str | None, pairs: dict[str, str]) -> None:
    assert parse(header) == pairs


HEADER = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.mark.parametrize(
    ("body", "status"), [({"prompt": "a"}, 200), ({"prompt": "a", "stream": True}, 200), ({}, 400)]
)
def test_they_come_back_with_the_reply(client: Client, body: dict[str, object], status: int) -> None:
    given = "c000b4f9-df62-4c85-a0bf-7c525f9104a4"
    reply = client.post("/invocations", json=body, headers={HEADER: given}, buffered=True)
    assert reply.status_code == status
    assert reply.headers[HEADER] == given


def test_a_schema_may_be_said_there(client: Client) -> None:
    reply = client.post("/invocations", json={"prompt": "a"}, headers={HEADER: "schema=nothing"})
    assert reply.status_code == 400
    assert b"schema=" in reply.data
