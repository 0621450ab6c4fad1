"""Custom attributes come back with the reply and reach the log; prompts do not."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from container.application import create_app
from container.request_log import line
from container.service import Service

HEADER = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.fixture
def client(service: Service) -> FlaskClient:
    return create_app(service).test_client()


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
