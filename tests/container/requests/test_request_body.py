"""The form of a request with an audio file."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from werkzeug.test import Client

from container.requests.request_body import MAX_FIELDS, MAX_PARTS, decode_form
from handler.errors import ClientError, InvalidBody, InvalidField, MissingField, UnsupportedMediaType

FILE = ("file", ("../../etc/passwd", b"\r\n--sound\0"))


def form(files: Any, data: Any = None) -> tuple[str, bytes]:
    request = httpx.Request("POST", "http://endpoint", files=files, data=data)
    return request.headers["Content-Type"], request.read()


def test_a_form_has_texts_lists_and_one_file() -> None:
    fields = {"language": "en", "timestamp_granularities[]": ["segment", "word"]}
    read = decode_form(*form([FILE], fields))
    assert read == {"language": "en", "timestamp_granularities": ["segment", "word"], "file": FILE[1][1]}


@pytest.mark.parametrize(
    ("files", "data", "kind", "field"),
    [
        ([FILE, FILE], {}, InvalidField, "file"),
        ([FILE, ("sound", ("a", b"a"))], {}, InvalidField, "sound"),
        ([FILE], {"model": ["a", "b"]}, InvalidField, "model"),
        ([("a", (None, b"a"))], {}, MissingField, "file"),
        ([("file", (None, b"a"))], {}, InvalidField, "file"),
        ([FILE], {"prompt": "a" * (MAX_FIELDS + 1)}, InvalidBody, None),
        ([FILE], {f"field{number}": "a" for number in range(MAX_PARTS)}, InvalidBody, None),
    ],
)
def test_a_form_that_is_not_one_file_with_fields(
    files: Any, data: dict[str, Any], kind: type[ClientError], field: str | None
) -> None:
    with pytest.raises(kind) as raised:
        decode_form(*form(files, data))
    assert raised.value.param == field


def test_bytes_that_are_no_form() -> None:
    kind, body = form([FILE])
    for broken in (b"", b"RIFF", body[:-20], body.replace(b' name="file";', b"")):
        with pytest.raises(InvalidBody):
            decode_form(kind, broken)
    with pytest.raises(UnsupportedMediaType):
        decode_form("multipart/form-data", body)


def test_only_the_routes_of_speech_and_invocations_take_a_form(client: Client) -> None:
    kind, body = form([FILE])
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        reply = client.post(path, data=body, headers={"Content-Type": kind})
        assert (reply.status_code, reply.get_json()["error"]["param"]) == (415, "Content-Type")
    attribute = {"X-Amzn-SageMaker-Custom-Attributes": "route=/v1/chat/completions"}
    reply = client.post("/invocations", data=body, headers={"Content-Type": kind, **attribute})
    assert reply.status_code == 415
