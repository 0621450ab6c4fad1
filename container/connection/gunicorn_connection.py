"""gunicorn's connection as the engine's loop uses it. All that knows gunicorn's inside is here.

Measured: a queue and a thread wake for each token loses to `vllm serve`; the engine's loop writing straight to the
socket, while the worker thread sleeps until the end, beats it. gunicorn gives a WSGI application its socket
(`environ["gunicorn.socket"]`), and its response object is what `start_response` is bound to.
Seen on gunicorn 27 (http/wsgi.py, workers/gthread.py).
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
        """The connection, or None under another server (Flask's test client), with TLS or HTTP/2."""
        connection = environ.get("gunicorn.socket")
        response = getattr(start_response, "__self__", None)
        if type(connection) is not socket.socket or not hasattr(response, "default_headers"):
            return None
        if type(response).__name__ != "Response":
            return None
        return cls(connection, response)

    @property
    def chunked(self) -> bool:
        """HTTP/1.1: the body is framed in chunks. HTTP/1.0 ends it by closing."""
        return bool(self._response.req.version > (1, 0))

    @property
    def status(self) -> int:
        """The reply's status; 0 where none was sent."""
        return int(getattr(self._response, "status_code", None) or 0)

    def head(self, status: str, headers: HeaderList) -> bytes:
        """Status line and headers as gunicorn would send them, without telling gunicorn yet."""
        scratch = type(self._response)(self._response.req, self._response.sock, self._response.cfg)
        scratch.must_close = self._response.must_close
        scratch.start_response(status, list(headers))
        lines = scratch.default_headers() + [f"{name}: {value}\r\n" for name, value in scratch.headers]
        return ("".join(lines) + "\r\n").encode("latin-1")

    def close_afterwards(self) -> None:
        """This reply is the connection's last one, and says so."""
        self._response.force_close()

    def take_back(self) -> None:
        """The loop has let go of the socket: libuv made it non-blocking, gunicorn's thread wants it blocking."""
        self.socket.setblocking(True)

    def finished(self, status: str, headers: HeaderList, sent: int, *, whole: bool) -> None:
        """Tells gunicorn that the reply is on the wire: `sent` bytes, and `whole` or broken off.

        A broken one is closed without the end mark that means success; after a whole one the connection is kept.
        """
        response = self._response
        response.start_response(status, list(headers))
        response.headers_sent = True
        response.sent = sent
        keep = whole and response.chunked
        response.chunked = False
        if keep:
            response.response_length = 0  # "complete": gunicorn then keeps the connection and adds nothing
        else:
            response.force_close()
