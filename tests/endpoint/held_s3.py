"""An S3 server on loopback that holds a request where a test says so, and never gets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Wanted = Callable[[str], bool]


class HeldS3:
    """moto's server with a gate before it. `hold` is asked for each request, as `GET /bucket/key`.

    :ivar held: the request that stands at the gate now.
    """

    def __init__(self) -> None:
        self.hold: Wanted = lambda request: False
        self.held = threading.Event()
        self._go = threading.Event()
        self._backend = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._gate, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def hold_at(self, wanted: Wanted) -> None:
        """From now on the requests that `wanted` picks wait."""
        self.held.clear()
        self._go = threading.Event()
        self.hold = wanted

    def drop(self) -> None:
        """What stood at the gate has never arrived, and nothing waits any more."""
        self.hold = lambda request: False
        self._go.set()

    def close(self) -> None:
        self.drop()
        self._server.shutdown()

    def _gate(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        go = self._go
        if self.hold(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"):
            self.held.set()
            go.wait(60)
            start_response("503 Slow Down", [])
            return [b""]
        reply: Iterable[bytes] = self._backend(environ, start_response)
        return reply
