"""Runs moto's server for this machine only. Argument: the port."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Set
from typing import Any
from urllib.parse import urlsplit

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

from local_sagemaker.parent import end_with_parent

HOST = "127.0.0.1"
WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
# moto's own routes: they show everything, and empty everything.
ADMINISTRATION = "/moto-api"


class LocalOnly:
    """A WSGI application in front of moto's server: no CORS, no foreign host or origin, no administration of moto.

    :param hosts: the values of `Host` that are served; a bucket's name may stand in front.
    """

    def __init__(self, app: WSGI, hosts: Set[str]) -> None:
        self._app = app
        self._hosts = hosts

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._is_foreign(environ):
            start_response("403 Forbidden", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return ()

        def without_cors(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            kept = [item for item in headers if not item[0].lower().startswith("access-control-")]
            return start_response(status, kept, *rest)

        return self._app(environ, without_cors)

    def _is_foreign(self, environ: dict[str, Any]) -> bool:
        host, origin = environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")
        served = host in self._hosts or any(host.endswith(f".{known}") for known in self._hosts)
        return (
            not served
            or environ.get("PATH_INFO", "").startswith(ADMINISTRATION)
            or (origin is not None and urlsplit(origin).netloc != host)
        )


def main(port: int) -> None:
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # Nothing of it is kept.
    os.environ["MOTO_PORT"] = str(port)
    guarded = LocalOnly(DomainDispatcherApplication(create_backend_app), {f"{HOST}:{port}", f"localhost:{port}"})
    run_simple(HOST, port, guarded, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
