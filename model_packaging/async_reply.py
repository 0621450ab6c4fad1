"""Waits for the reply of an asynchronous request: one of two objects in S3, which appears when the request is done.

places = EndpointClient("chat").invoke_async("s3://bucket/question.json")
answer = wait_for_answer(places, seconds=900)
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handler.storage.s3_errors import translated
from handler.storage.storage_errors import NotFound
from model_packaging.client import EVENTS, LINES, InvocationFailed, NotJson, document_of, documents, failure_of, text_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

POLL_SECONDS = 1.0
# SageMaker's text for an error of the container: `Received client error (400) from primary with message "..."`.
OF_THE_CONTAINER = re.compile(r'Received \w+ error \((\d+)\) from .{0,100}? with message "(.*)"', re.DOTALL)


class NoAnswerYet(InvocationFailed):
    """Neither of the two objects appeared in time. The request may still be answered."""

    def __init__(self, places: Mapping[str, str], seconds: float) -> None:
        unsaid = "" if places["failure"] else " The endpoint has no S3FailurePath, so a failure would leave no object."
        message = f"Nothing came within {seconds:g} s; the answer would be {places['output']}.{unsaid}"
        super().__init__({"message": message, "type": "server_error", "code": "no_answer_yet"})


def put_request(
    location: str, body: Mapping[str, Any], *, s3: S3Client | None = None, region: str | None = None
) -> None:
    """Writes a request's body to S3, for `EndpointClient.invoke_async`.

    :raises ValueError: the location is not s3://bucket/key.
    """
    bucket, key = _bucket_and_key(location)
    text = json.dumps(body, ensure_ascii=False).encode()
    with translated(location, "s3:PutObject"):
        (s3 or _s3(region)).put_object(Bucket=bucket, Key=key, Body=text, ContentType="application/json")


def wait_for_answer(
    places: Mapping[str, str],
    seconds: float,
    *,
    s3: S3Client | None = None,
    region: str | None = None,
    poll: float = POLL_SECONDS,
) -> dict[str, Any] | str:
    """Waits until one of the two objects exists, and returns the reply.

    :param places: what `EndpointClient.invoke_async` returned: `output` and `failure`.
    :param s3: the boto3 client to use. The default is a new one. It needs `s3:GetObject` on both and `s3:ListBucket`:
        without the latter, S3 replies 403 for an object that does not exist yet.
    :return: the reply, or its text if it is not a JSON object or was streamed.
    :raises InvocationFailed: the container replied with an error, or the request expired in the queue.
    :raises NoAnswerYet: no object appeared within `seconds`.
    """
    client = s3 or _s3(region)
    until = time.monotonic() + seconds
    while True:
        body = _read(client, places["output"])
        if body is not None:
            return _answer(body)
        body = _read(client, places["failure"]) if places["failure"] else None
        if body is not None:
            raise _failure(body.decode(errors="replace"))
        if time.monotonic() > until:
            raise NoAnswerYet(places, seconds)
        time.sleep(min(poll, max(0.0, until - time.monotonic())))


def _read(client: S3Client, location: str) -> bytes | None:
    bucket, key = _bucket_and_key(location)
    try:
        with translated(location, "s3:GetObject"):
            return client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except NotFound:
        return None


def _answer(body: bytes) -> dict[str, Any] | str:
    """Returns the reply. The object of a streamed reply has its events or its JSON lines."""
    text = body.decode(errors="replace")
    try:
        reply = document_of(body)
    except NotJson:
        kind = EVENTS if text.startswith(("data:", "event:")) else LINES
        try:
            return "".join(map(text_of, documents(kind, [body])))
        except NotJson:
            return text
    return reply if isinstance(reply, dict) else text


def _failure(text: str) -> InvocationFailed:
    match = OF_THE_CONTAINER.search(text)
    return failure_of(match[2], int(match[1])) if match else failure_of(text)


def _bucket_and_key(location: str) -> tuple[str, str]:
    bucket, _, key = location.removeprefix("s3://").partition("/")
    if not location.startswith("s3://") or not bucket or not key:
        raise ValueError(f"{location!r} is no s3://bucket/key")
    return bucket, key


def _s3(region: str | None) -> S3Client:
    from handler.storage.s3_client import make_client

    return make_client(region=region)
