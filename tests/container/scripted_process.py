"""`scripted_server.py` as a process: a real gunicorn with the real worker, the engine scripted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.container.raw_http import Connection, request
from tests.handler.waiting import WITHIN, eventually

THREADS = 12
PING = request("/ping")
# Arguments: small bodies parsed on the loop, or every body in a thread. What a client sees is the same.
MODES: tuple[tuple[str, ...], ...] = ((), ("--threads",))


def start_scripted(
    name: str, log: Path, *arguments: str, session: bool = False, **environment: str
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a program of this folder. With it comes the port that it prints.

    :param session: it has a session of its own.
    """
    folder = Path(__file__).parent
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(folder / name), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(folder.parents[1]), **environment},
            start_new_session=session,
        )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


class Server:
    """The process, and what its engine has seen since the test began."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        self.process, self.port = start_scripted("scripted_server.py", log, *arguments)
        self.before: dict[str, int] = {}
        eventually(self.ready)

    def connect(self) -> Connection:
        return Connection(self.port)

    def ready(self) -> bool:
        with self.connect() as connection:
            return connection.exchange(PING)[0].status == 200

    def seen(self) -> dict[str, int]:
        with self.connect() as connection:
            seen: dict[str, int] = json.loads(connection.exchange(request("/scripted"))[1])
        return {name: count - self.before.get(name, 0) for name, count in seen.items()}

    @contextmanager
    def clean(self, *counts: str) -> Iterator[Server]:
        """The server for one test: these counts begin at 0, and after it nothing of it is left in there."""
        self.before = {}
        self.before = {name: count for name, count in self.seen().items() if name in counts}
        yield self
        eventually(lambda: (seen := self.seen())["in_flight"] == 0 and seen["in_engine"] == 0)

    def open(self, gate: str) -> None:
        with self.connect() as connection:
            connection.exchange(request(f"/scripted/{gate}", {}))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=WITHIN)


@contextmanager
def served(directory: Path, *arguments: str) -> Iterator[Server]:
    """A server for the tests of a module. Whatever they do, nothing raises in it."""
    server = Server(directory / "errors.log", *arguments)
    yield server
    if server.process.poll() is None:
        server.stop()
    assert "Traceback" not in server.log.read_text()
