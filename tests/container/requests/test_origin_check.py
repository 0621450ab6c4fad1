"""A web page of another origin cannot use the endpoint through its visitor's browser."""

from __future__ import annotations

import pytest
from werkzeug.test import Client

BODY = {"prompt": "a", "max_tokens": 1}


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://localhost.evil.example", "http://[", "]"]
)
def test_a_post_of_another_origin_is_rejected(client: Client, origin: str) -> None:
    reply = client.post("/invocations", json=BODY, headers={"Origin": origin})
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (403, "foreign_origin")


def test_a_host_that_is_not_valid_is_no_page_without_an_origin(client: Client) -> None:
    for host, origin, status in (("my_host", "null", 403), ("my_host", "http://my_host", 200), ("", "null", 403)):
        assert client.post("/invocations", json=BODY, headers={"Host": host, "Origin": origin}).status_code == status


def test_a_websocket_of_another_origin_is_rejected(client: Client) -> None:
    headers = {"Origin": "http://evil.example", "Upgrade": "websocket", "Connection": "Upgrade"}
    reply = client.get("/invocations-bidirectional-stream", headers=headers)
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://localhost"}])
def test_a_program_and_the_own_page_are_answered(client: Client, headers: dict[str, str]) -> None:
    assert client.post("/invocations", json=BODY, headers=headers).status_code == 200
    assert client.get("/ping", headers={"Origin": "http://evil.example"}).status_code == 200
