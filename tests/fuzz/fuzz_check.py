"""Sends the fuzz's requests, and says what is wrong with a reply."""

from __future__ import annotations

import http.client
import json
import re
import socket
from typing import Any

from tests.fuzz.fuzz_requests import Sent

LONGEST_WAIT = 60.0
# A CPU engine does not make more tokens before a request's deadline of 58 s.
MOST_IN_TIME = 20_000
# What Python's tracebacks and exceptions' texts look like.
MARKS = (b"Traceback", b'File "/', b".py", b"site-packages", b"object at 0x")


class FuzzClient:
    """One connection, opened anew where the reply before it closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None

    def ask(self, sent: Sent) -> tuple[int, str, bytes]:
        """Status (0: there was no reply), content type and body."""
        fresh = self._socket is None
        connection = self._socket or socket.create_connection(("127.0.0.1", self.port), LONGEST_WAIT)
        self._socket = None
        try:
            try:
                connection.sendall(sent.raw)  # all of it, whatever the server has answered by then
                if sent.ends:
                    connection.shutdown(socket.SHUT_WR)
                reply = http.client.HTTPResponse(connection, method=sent.method)
                reply.begin()
                body = reply.read()
            except http.client.RemoteDisconnected:  # which is also a ConnectionResetError
                if not fresh:
                    return self.ask(sent)  # a kept connection may be closed at any time
                return 0, "", b""
            except OSError as error:
                if fresh or isinstance(error, TimeoutError):
                    raise
                return self.ask(sent)
            except http.client.IncompleteRead as error:
                return -1, "", error.partial[-300:]
            except http.client.HTTPException as error:
                return -1, "", repr(error).encode()
            if not reply.will_close and sent.http and not sent.ends:
                self._socket = connection
            return reply.status, reply.headers.get("Content-Type", ""), body
        finally:
            if self._socket is None:
                connection.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def finding(sent: Sent, status: int, kind: str, body: bytes) -> str | None:
    """What is wrong with a reply, or None."""
    if status <= 0:  # a client that closes its side has left: its stream ends
        ended = sent.ends or (status == 0 and not sent.http) or _is_refused(body)
        return None if ended else f"no reply ({body!r})"
    if b"deadline_exceeded" in body and is_long(sent.raw):
        return None
    if status >= 500 and not (status == 501 and b" /adapters" in sent.raw[:20]):  # an engine without adapters says so
        return f"status {status}"
    if any(mark in body for mark in MARKS):
        return "a traceback, or a part of one"
    if sent.method == "HEAD":
        return None
    if status >= 400:
        return None if kind == "application/json" and is_error(_json(body)) else f"{status} is not our error form"
    if kind.startswith("text/event-stream"):
        return _events(body)
    if kind == "application/jsonlines":
        return next((found for line in body.splitlines() if (found := document_finding(_json(line)))), None)
    if kind == "application/json":
        return "not JSON" if _json(body) is None else None
    return None


def is_long(body: bytes) -> bool:
    """Whether a request may not end in time: its prompts, its sequences of each and the most tokens of one."""
    sequences = (int(number) for number in re.findall(rb'"n": (\d{1,9})\b', body))
    tokens = (int(number) for number in re.findall(rb'"max\w*_tokens": (\d{1,9})\b', body))
    prompts = body.count(b"], [") + 1  # of tokens; other lists count, too
    return prompts * max(sequences, default=1) * max(tokens, default=0) >= MOST_IN_TIME


def is_error(document: Any) -> bool:
    """OpenAI's error object, or Anthropic's, and nothing beside it."""
    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        return False
    if set(document) != {"error"} and (set(document) != {"error", "type"} or document["type"] != "error"):
        return False
    error = document["error"]
    texts = [error.get(name) for name in ("message", "type", "code")]
    return set(error) == {"message", "type", "param", "code"} and all(isinstance(text, str) and text for text in texts)


def _is_refused(part: bytes) -> bool:
    """Whether a stream without its end mark ends in an error that is the client's: its grammar leaves no token."""
    error = _json(part.strip().rpartition(b"data:")[2])
    return is_error(error) and error["error"]["type"] == "invalid_request_error"


def _events(body: bytes) -> str | None:
    events = body.split(b"\n\n")
    if events.pop() != b"":
        return "a stream ends within an event"
    for event in events:
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if data != b"[DONE]" and (found := document_finding(_json(data))):
            return found
    return None


def document_finding(document: Any) -> str | None:
    """What is wrong with a document of a stream or of a batch, or None."""
    if document is None:
        return "a line or an event that is no JSON"
    if isinstance(document, dict) and document.get("error"):
        if not is_error(document):
            return "an error in a stream is not our error form"
        if document["error"]["type"] != "invalid_request_error" and "not_found" not in document["error"]["type"]:
            return f"a server's error in a stream: {document['error']['message']}"
    return None


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
