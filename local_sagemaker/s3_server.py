"""The local S3 (and CloudWatch and Application Auto Scaling): moto's server, in a process of its own.

``python -m local_sagemaker.s3_server PORT`` is that process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from local_sagemaker.local_only import is_foreign
from local_sagemaker.parent import end_with_parent

HOST = "127.0.0.1"
STARTED_WITHIN = 60.0
WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
# moto's own routes: they show everything, and empty everything.
ADMINISTRATION = "/moto-api"


class S3Server:
    """The S3 server's process. It ends with this one."""

    def __init__(self, port: int, log_file: Path) -> None:
        self._port = port
        self.url = f"http://{HOST}:{port}"
        with log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "local_sagemaker.s3_server", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # A Ctrl-C at a terminal must not end it before the containers have ended.
            )

    def wait_started(self) -> None:
        """Waits until the server answers.

        :raises SystemExit: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + STARTED_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with closing(HTTPConnection(HOST, self._port, timeout=2)) as connection:
                    connection.request("GET", "/")
                    connection.getresponse()
                return
            except (OSError, HTTPException):
                time.sleep(0.05)
        sys.exit("the S3 server did not start; see s3.log in the state directory")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalOnly:
    """A WSGI application in front of moto's server: no CORS, no foreign host or origin, no administration of moto."""

    def __init__(self, app: WSGI) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        administers = environ.get("PATH_INFO", "").startswith(ADMINISTRATION)
        if administers or is_foreign(environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")):
            start_response("403 Forbidden", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return ()

        def without_cors(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            kept = [item for item in headers if not item[0].lower().startswith("access-control-")]
            return start_response(status, kept, *rest)

        return self._app(environ, without_cors)


def main(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # Nothing of it is kept.
    os.environ["MOTO_PORT"] = str(port)
    guarded = LocalOnly(DomainDispatcherApplication(create_backend_app))
    run_simple(HOST, port, guarded, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
