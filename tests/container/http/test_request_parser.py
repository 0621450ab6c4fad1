"""Whose request it is, by its bytes alone."""

from __future__ import annotations

import pytest

from container.fast_path.request_head import LONGEST_BODY, LONGEST_HEAD, NotEligible, head_of
from handler.engine.api_routes import Route

BODY = b'{"prompt": "a"}'


def post(path: str = "/invocations", *headers: str, version: str = "1.1") -> bytes:
    given = ("Host: x", *headers) if headers else ("Host: x", "Content-Type: application/json", "Content-Length: 15")
    return "\r\n".join((f"POST {path} HTTP/{version}", *given, "", "")).encode()


def with_length(length: object, *more: str) -> bytes:
    return post("/invocations", "Content-Type: application/json", f"Content-Length: {length}", *more)


def test_a_head_says_where_the_body_is_and_what_wsgi_would() -> None:
    head = head_of(with_length(15, "X-Amzn-SageMaker-Inference-Id:  abc ") + BODY)
    assert head is not None
    assert (head.length, head.path, head.route, head.keep_alive) == (15, "/invocations", None, True)
    assert head.environ == {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/invocations",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "x",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "15",
        "HTTP_X_AMZN_SAGEMAKER_INFERENCE_ID": "abc",
    }
    assert head.size == len(with_length(15, "X-Amzn-SageMaker-Inference-Id:  abc "))


@pytest.mark.parametrize(
    ("path", "route"), [("/v1/chat/completions", Route.CHAT), ("/v1/completions", Route.COMPLETIONS)]
)
def test_a_path_of_its_own_says_what_the_body_is(path: str, route: Route) -> None:
    head = head_of(post(path))
    assert head is not None
    assert head.route is route


def test_a_connection_may_end_with_the_reply() -> None:
    head = head_of(with_length(15, "Connection: close"))
    assert head is not None
    assert not head.keep_alive


@pytest.mark.parametrize("size", [*range(1, len(post()))])
def test_a_head_in_pieces_is_waited_for(size: int) -> None:
    assert head_of(post()[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        b"G",
        b"POST x",
        b"\x16\x03\x01",
        post("/v1/embeddings"),
        post("/invocations?a=1"),
        post("/invocations/"),
        post("/INVOCATIONS"),
        post("http://x/invocations"),
        post(version="1.0"),
        post(version="2.0"),
        with_length(LONGEST_BODY + 1),
        with_length(0),
        with_length("0" * 4400 + "15"),
        with_length(15).replace(b"Host: x\r\n", b""),
        with_length(-1),
        with_length("1_0"),
        with_length("+15"),
        with_length(15, "Content-Length: 15"),
        with_length(15, "Content-Length: 16"),
        with_length(15, "Transfer-Encoding: chunked"),
        with_length(15, "Expect: 100-continue"),
        with_length(15, "Connection: Upgrade", "Upgrade: websocket"),
        with_length(15, "Content-Encoding: gzip"),
        with_length(15, "X_Amzn_SageMaker_Inference_Id: a"),
        with_length(15, "Accept: a", "Accept: b"),
        with_length(15, "X-Amzn-SageMaker-Session-Id: NEW_SESSION"),
        with_length(15, "X: " + "a" * LONGEST_HEAD),
        with_length(15, " folded: a"),
        with_length(15, "a b: c"),
        post("/invocations", "Content-Length: 15"),
        post("/invocations", "Content-Type: application/jsonlines", "Content-Length: 15"),
        post("/invocations", "Content-Type: application/json; charset=latin-1", "Content-Length: 15"),
        post("/invocations", "Content-Type: application/json", "Transfer-Encoding: chunked"),
        b"POST /invocations HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: 15\n\n\r\n\r\n",
    ],
)
def test_everything_else_is_gunicorns(data: bytes) -> None:
    with pytest.raises(NotEligible):
        head_of(data)
