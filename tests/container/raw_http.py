"""HTTP/1.x as bytes on a socket: what a client library would smooth over is what these tests look at."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

SECONDS = 10.0


@dataclass(frozen=True)
class Head:
    """A status line and its headers, names in lower case."""

    version: str
    status: int
    headers: dict[str, str]


def request(path: str, body: dict[str, Any] | None = None, *, version: str = "1.1", headers: str = "") -> bytes:
    """A request's bytes: GET without a body, POST with one."""
    if body is None:
        return f"GET {path} HTTP/{version}\r\nHost: x\r\n{headers}\r\n".encode()
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n{headers}\r\n".encode() + content


class Connection:
    """One connection, read byte for byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> Head:
        version, status, _ = self._file.readline().decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        return Head(version, int(status), headers)

    def chunk(self) -> bytes | None:
        """The next chunk's bytes: b"" for the end mark, None where the connection has been closed instead."""
        line = self._file.readline()
        if not line:
            return None
        assert line.endswith(b"\r\n"), line
        size = int(line, 16)
        data = self._file.read(size)
        assert len(data) == size, "closed within a chunk"
        assert self._file.read(2) == b"\r\n"
        return data

    def chunks(self) -> tuple[bytes, bool]:
        """The rest of a chunked body, and whether it ended with the end mark."""
        body = b""
        while data := self.chunk():
            body += data
        return body, data == b""

    def content(self, head: Head) -> bytes:
        """A body of a known length."""
        return self._file.read(int(head.headers["content-length"]))

    def rest(self) -> bytes:
        """Everything until the connection is closed."""
        return self._file.read()

    def exchange(self, data: bytes) -> tuple[Head, bytes]:
        """Sends a request and reads the whole reply, chunked or of a length."""
        self.send(data)
        head = self.head()
        if head.headers.get("transfer-encoding") == "chunked":
            body, whole = self.chunks()
            assert whole
            return head, body
        return head, self.content(head)
