"""A proxy in front of an S3 server that breaks replies as a `Plan` says. Loopback only."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.fault_proxy.plan import Fault, Plan

ERRORS = {
    Fault.SLOW_DOWN: (503, "SlowDown", "Please reduce your request rate."),
    Fault.INTERNAL: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.FORBIDDEN: (403, "AccessDenied", "Access Denied"),
    Fault.SKEWED: (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the server's is too large.",
    ),
}
SKEW = 3600.0
STALL = 3.0  # seconds; longer than any patience of the tests
PAUSE = 0.05  # shorter than any


class FaultProxy:
    """Serves on a port of its own until closed. `plan` may be exchanged at any time.

    :param upstream: the port of the server on loopback.
    :ivar outwaited: trickling bodies that the client did not give up.
    :ivar watch: called with each request's path, before anything is done with it.
    """

    def __init__(self, upstream: int) -> None:
        self.plan = Plan(None)
        self.watch: Callable[[str], None] = lambda path: None
        self.outwaited = 0
        self.ended = threading.Event()
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy = proxy
        Handler.upstream = upstream
        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultProxy
    upstream: int

    def do_GET(self) -> None:
        self.proxy.watch(self.path)
        fault = self.proxy.plan.fault(f"{self.path} {self.headers.get('Range', '')}")
        if fault is Fault.RESET_AT_ONCE:
            return self._reset()
        if fault is Fault.GARBAGE:
            self.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True
            return None
        if fault in ERRORS:
            return self._error(*ERRORS[fault], skewed=fault is Fault.SKEWED)
        status, headers, body = self._forward()
        if fault is Fault.WHOLE and self.headers.get("Range"):
            headers = {name: value for name, value in headers.items() if name != "Content-Range"}
            body += body
        elif fault is Fault.FLIPPED and body and status < 300:
            broken = bytearray(body)
            broken[len(body) // 3] ^= 0x10
            body = bytes(broken)
        elif fault is Fault.SHORT:
            body = body[: len(body) // 2]
        self._reply(status, headers, len(body))
        half = len(body) // 2
        if fault in {Fault.RESET_MIDWAY, Fault.TRUNCATED, Fault.STALL, Fault.TRICKLE, Fault.SLOW}:
            self.wfile.write(body[:half])
            if fault is Fault.RESET_MIDWAY:
                return self._reset()
            if fault is Fault.SLOW:
                time.sleep(0.02)
            if fault is Fault.STALL:
                self.proxy.ended.wait(STALL)
            if fault is Fault.TRICKLE:
                self._trickle(body[half:])
            if fault in {Fault.TRUNCATED, Fault.STALL, Fault.TRICKLE}:
                self.close_connection = True
                return None
            body = body[half:]
        self.wfile.write(body)
        return None

    def _forward(self) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=20)
        try:
            connection.putrequest("GET", self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # Host among them: it is signed
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders()
            reply = connection.getresponse()
            body = reply.read()
            return reply.status, dict(reply.getheaders()), body
        finally:
            connection.close()

    def _reply(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _error(self, status: int, code: str, message: str, *, skewed: bool) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        date = formatdate(time.time() - (SKEW if skewed else 0), usegmt=True)
        self._reply(status, {"Content-Type": "application/xml", "Date": date}, len(body))
        self.wfile.write(body)

    def _trickle(self, body: bytes) -> None:
        """Never silent for long, never done."""
        for number in range(min(len(body) - 1, int(STALL / PAUSE))):
            self.wfile.write(body[number : number + 1])
            if self.proxy.ended.wait(PAUSE):
                return
        self.proxy.outwaited += 1

    def _reset(self) -> None:
        """RST instead of FIN: what the client has not read yet is lost."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
