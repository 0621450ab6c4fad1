"""An OTLP receiver on loopback: what a real exporter sends over HTTP, read as OpenTelemetry's protocol says."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class SeenSpan:
    """One span. Ids in hexadecimal, times in nanoseconds since 1970."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    begin: int
    end: int
    status: int
    attributes: dict[str, Any]


class Receiver:
    """What has come so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: set[str] = set()
        self._spans: list[SeenSpan] = []
        self._changed = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = []
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                found += [_seen(service, span) for span in scope.spans]
        with self._changed:
            self.paths.add(path)
            self._spans += found
            self._changed.notify_all()

    def spans(self, trace: str, count: int, within: float = 20.0) -> list[SeenSpan]:
        """The spans of a trace, once there are so many."""

        def found() -> list[SeenSpan]:
            return [span for span in self._spans if span.trace == trace]

        with self._changed:
            self._changed.wait_for(lambda: len(found()) >= count, within)
            return found()


def _seen(service: str, span: Any) -> SeenSpan:
    return SeenSpan(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code,
        _values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            reply = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
