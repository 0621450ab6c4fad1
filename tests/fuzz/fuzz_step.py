"""Sends one step of a sequence, and says what is wrong with the replies."""

from __future__ import annotations

import json
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.fuzz.fuzz_check import LONGEST_WAIT, FuzzClient, document_finding, finding, is_long
from tests.fuzz.fuzz_sequences import FuzzStep

WEBSOCKET = "ws://127.0.0.1:{port}/invocations-bidirectional-stream"
# The last message of a WebSocket. Its error, which names the field, comes after the replies to the others.
LAST, LAST_FIELD = b'{"prompt": "a", "skip_special_tokens": 1}', '"param":"skip_special_tokens"'
# A status, the code and the field of an error, and its message.
Reason = tuple[int, str, str]


def finding_of(client: FuzzClient, step: FuzzStep) -> tuple[str | None, list[int]]:
    """What is wrong, and the statuses of all replies."""
    if step.messages:
        return _conversation(client.port, step.messages), [101]
    statuses, reasons, wrong = [], [], None
    for request in step.requests:
        try:
            status, kind, body = client.ask(request)
            wrong = wrong or finding(request, status, kind, body)
        except Exception as error:  # a reply that does not come, or cannot be read
            status, kind, body, wrong = -1, "", b"", wrong or repr(error)
        statuses.append(status)
        reasons.append(reason_of(status, kind, body))
        if wrong is not None:
            return f"{wrong}\n  {status} {body[:600]!r}", statuses
    if len(reasons) == 2 and differs(*reasons):
        return f"whole {reasons[0]}, and streamed {reasons[1]}", statuses
    return None, statuses


def differs(whole: Reason, streamed: Reason) -> bool:
    """Whether two replies to one body differ in more than that one is a stream.

    The endpoint may not offer that. A stream has more time, so of a long request only the whole reply may be late. Only
    a whole reply has its log probabilities in memory together, which ENDPOINT_MAX_REPLY_LOGPROBS bounds.
    """
    refused = streamed[0] == 400 and "stream" in streamed[2]
    may_differ = refused or "deadline_exceeded" in whole[1] or "ENDPOINT_MAX_REPLY_LOGPROBS" in whole[2]
    return whole[:2] != streamed[:2] and not may_differ


def reason_of(status: int, kind: str, body: bytes) -> Reason:
    """Why a reply is an error. An error within a stream counts."""
    texts = [body]
    if kind.startswith("text/event-stream"):
        texts = [event.partition(b"data:")[2] for event in body.split(b"\n\n") if b'"error"' in event]
    elif kind == "application/jsonlines":
        texts = [line for line in body.splitlines() if b'"error"' in line]
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError:
            continue
        error = document.get("error") if isinstance(document, dict) else None
        if isinstance(error, dict):
            return status, f"{error.get('code')} {error.get('param')}", str(error.get("message"))
    return status, "" if body else "an empty body", ""


def _conversation(port: int, messages: tuple[bytes, ...]) -> str | None:
    try:
        with connect(
            WEBSOCKET.format(port=port), proxy=None, compression=None, max_size=None, ping_interval=None
        ) as connection:
            for message in (*messages, LAST):
                connection.send(message)
            while True:
                frame = connection.recv(LONGEST_WAIT)
                if LAST_FIELD in frame[:2000]:
                    return None
                wrong = None if frame == "[DONE]" else document_finding(_parsed(frame))
                if wrong is not None:
                    return f"WebSocket: {wrong}: {frame[:600]!r}"
    except TimeoutError as error:
        return None if any(map(is_long, messages)) else f"WebSocket: {error!r}"
    except (ConnectionClosed, OSError) as error:
        return f"WebSocket: {error!r}"


def _parsed(frame: str | bytes) -> Any:
    try:
        return json.loads(frame)
    except ValueError:
        return None
