"""A request's connection under gunicorn, as the engine's loop uses it. Everything about gunicorn's internals is here.

Measured: with a queue and a thread wake-up for each token a stream is slower than `vllm serve`. It is faster when the
engine's loop writes straight to the socket and the worker thread sleeps until the end. gunicorn gives a WSGI
application its socket (`environ["gunicorn.socket"]`). `start_response` is a method of gunicorn's response object.
Read in gunicorn 27 (http/wsgi.py, workers/gthread.py).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HeaderList = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class GunicornConnection:
    """One request's connection under gunicorn's gthread worker, HTTP/1.x without TLS."""

    socket: socket.socket
    _response: Any

    @classmethod
    def of(cls, environ: Mapping[str, Any], start_response: object) -> GunicornConnection | None:
        """The connection; None under another server (Flask's test client), with TLS, and with HTTP/2."""
        connection = environ.get("gunicorn.socket")
        response = getattr(start_response, "__self__", None)
        if type(connection) is not socket.socket or not hasattr(response, "default_headers"):
            return None
        if type(response).__name__ != "Response":
            return None
        return cls(connection, response)

    @property
    def chunked(self) -> bool:
        """Whether the body is sent in chunks (HTTP/1.1). In HTTP/1.0 the body ends when the connection closes."""
        return bool(self._response.req.version > (1, 0))

    @property
    def status(self) -> int:
        """The reply's status; 0 if none was sent."""
        return int(getattr(self._response, "status_code", None) or 0)

    def head(self, status: str, headers: HeaderList) -> bytes:
        """Status line and headers as gunicorn would send them. Does not change gunicorn's response object."""
        copy = type(self._response)(self._response.req, self._response.sock, self._response.cfg)
        copy.must_close = self._response.must_close
        copy.start_response(status, list(headers))
        lines = copy.default_headers() + [f"{name}: {value}\r\n" for name, value in copy.headers]
        return ("".join(lines) + "\r\n").encode("latin-1")

    def close_afterwards(self) -> None:
        """Closes the connection after this reply, and says so in its headers."""
        self._response.force_close()

    def take_back(self) -> None:
        """Makes the socket blocking again for gunicorn's thread: libuv made it non-blocking."""
        self.socket.setblocking(True)

    def handed_over(self) -> None:
        """Tells gunicorn that another process answers. Its connection stays open: there is no shutdown here."""
        self.finished("503 Service Unavailable", [], 0, whole=False)
        self.socket.close()

    def finished(self, status: str, headers: HeaderList, sent: int, *, whole: bool) -> None:
        """Tells gunicorn that the reply was sent.

        After a whole reply the connection is kept. Otherwise it is closed without the end mark that means success.

        :param sent: bytes of the body.
        :param whole: the reply is complete.
        """
        response = self._response
        response.start_response(status, list(headers))
        response.headers_sent = True
        response.sent = sent
        keep = whole and response.chunked
        response.chunked = False
        if keep:
            response.response_length = 0  # "complete": gunicorn keeps the connection and adds nothing
        else:
            response.force_close()
