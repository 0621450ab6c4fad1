"""Custom attributes: read strictly, given back, and in the log."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from container.application import create_app
from container.attributes import parse
from container.request_log import line
from container.service import Service
from handler.errors import InvalidField

HEADER = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.fixture
def client(service: Service) -> FlaskClient:
    return create_app(service).test_client()


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        (None, {}),
        ("", {}),
        ("trace_id=abc", {"trace_id": "abc"}),
        (" Trace_Id = a b ; schema=chat;", {"trace_id": "a b", "schema": "chat"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=b=c", {"a": "b=c"}),
        ("c000b4f9-df62-4c85-a0bf-7c525f9104a4", {}),
        ("=x;a=", {"a": ""}),
    ],
)
def test_pairs(header: str | None, pairs: dict[str, str]) -> None:
    assert parse(header) == pairs


@pytest.mark.parametrize("header", ["a=" + "x" * 1023, "a=\u00e9", "a=\x00", "a=b\tc"])
def test_what_sagemaker_would_not_let_through_is_refused(header: str) -> None:
    with pytest.raises(InvalidField, match=HEADER):
        parse(header)


@pytest.mark.parametrize(
    ("body", "status"), [({"prompt": "a"}, 200), ({"prompt": "a", "stream": True}, 200), ({}, 400)]
)
def test_they_come_back_with_the_reply(client: FlaskClient, body: dict[str, object], status: int) -> None:
    given = "c000b4f9-df62-4c85-a0bf-7c525f9104a4"
    reply = client.post("/invocations", json=body, headers={HEADER: given}, buffered=True)
    assert reply.status_code == status
    assert reply.headers[HEADER] == given


def test_a_schema_may_be_said_there(client: FlaskClient) -> None:
    reply = client.post("/invocations", json={"prompt": "a"}, headers={HEADER: "schema=nothing"})
    assert reply.status_code == 400
    assert b"schema=" in reply.data


def test_ids_reach_the_log_and_prompts_do_not() -> None:
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/invocations",
        "HTTP_X_AMZN_SAGEMAKER_CUSTOM_ATTRIBUTES": "trace_id=abc",
        "HTTP_X_AMZN_SAGEMAKER_INFERENCE_ID": "id-1",
        "HTTP_X_AMZN_SAGEMAKER_TARGET_VARIANT": "blue" * 1000,
        "wsgi.input": "secret prompt",
    }
    found = line(environ, "200 OK", 12, 0.0)
    assert found["custom_attributes"] == {"trace_id": "abc"}
    assert found["inference_id"] == "id-1"
    assert len(str(found["target_variant"])) == 256
    assert (found["status"], found["sent_bytes"]) == (200, 12)
    assert "secret" not in str(found)
