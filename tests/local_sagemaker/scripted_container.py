"""A container stand-in, without a model, that does what a test's script tells it, exchange by exchange."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exchange:
    """One request to the container, and the means to answer it, or to fail to."""

    def __init__(self, handler: BaseHTTPRequestHandler, read_body: bool) -> None:
        self._handler = handler
        self.path = handler.path
        self.headers = dict(handler.headers.items())
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))) if read_body else b""

    def reply(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._head(status, {**(headers or {}), "Content-Length": str(len(body))})
        self._handler.wfile.write(body)

    def begin(self, headers: dict[str, str] | None = None) -> None:
        self._head(200, {**(headers or {}), "Transfer-Encoding": "chunked"})

    def send(self, chunk: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def send_no_http(self, chunk: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%b\r\nno chunk\r\n" % (len(chunk), chunk))

    def send_together(self, *chunks: bytes) -> None:
        """Several chunks in one segment."""
        self._handler.wfile.write(b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks))

    def trickle(self, head: bytes, seconds: float) -> None:
        """Bytes without an end, one after the other, as long as the peer takes them."""
        self.close()
        with suppress(OSError):
            self._handler.wfile.write(head)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                self._handler.wfile.write(b"1")
                time.sleep(0.05)

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def close(self) -> None:
        """After the reply, with whatever the peer is still sending unread."""
        self._handler.close_connection = True

    def break_off(self) -> None:
        self.close()
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def peer_hung_up(self, within: float) -> bool:
        self._handler.connection.settimeout(within)
        try:
            return not self._handler.connection.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()


Script = Callable[[Exchange], None]


def echo(exchange: Exchange) -> None:
    seen = {"path": exchange.path, "headers": exchange.headers, "body": exchange.body.decode()}
    exchange.reply(json.dumps(seen).encode(), headers={"Content-Type": "application/json"})


class ScriptedContainer:
    def __init__(self) -> None:
        self.script: Script = echo
        self.reads_bodies = True
        container = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                container.script(Exchange(self, container.reads_bodies))

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
