"""The local S3 answers this machine's programs, and no web page."""

from __future__ import annotations

import pytest
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from local_sagemaker.s3_server import LocalOnly

HOST = "127.0.0.1:9000"


@Request.application
def everything(request: Request) -> Response:
    return Response("all of it", headers={"Access-Control-Allow-Origin": "*", "ETag": "x"})


@pytest.fixture
def client() -> Client:
    return Client(LocalOnly(everything))


@pytest.mark.parametrize("host", [HOST, "localhost:9000", "bucket.localhost:9000"])
def test_a_program_is_answered_without_cors(client: Client, host: str) -> None:
    reply = client.get("/models/one", headers={"Host": host})
    assert (reply.status_code, reply.text, reply.headers.get("ETag")) == (200, "all of it", "x")
    assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/models/one", {"Host": "evil.example"}),
        ("/models/one", {"Host": "127.0.0.1:9000.evil.example"}),
        ("/models/one", {"Host": HOST, "Origin": "http://evil.example"}),
        ("/models/one", {"Host": HOST, "Origin": "http://["}),
        ("/moto-api/reset", {"Host": HOST}),
        ("/moto-api/data.json", {"Host": HOST}),
    ],
)
def test_a_web_page_is_not(client: Client, path: str, headers: dict[str, str]) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        assert client.open(path, method=method, headers=headers).status_code == 403
