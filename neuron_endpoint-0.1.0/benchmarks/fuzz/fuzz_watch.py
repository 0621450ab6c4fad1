"""Watches what other clients notice: the first token of a plain stream, /ping, and the engine's process.

It runs in a process of its own, so that the clients that it watches for do not delay it.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType

from handler.processes import alive

BODY = json.dumps({"prompt": "What does /ping mean?", "max_tokens": 2, "stream": True}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
STREAM = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
TOKEN, ENGINE = "first token", "engine"
TIMEOUT_S, PAUSE_S = 120.0, 0.1


@dataclass(frozen=True, slots=True)
class Waited:
    """One wait of another client. All times are monotonic seconds.

    :ivar what: `first token`, `ping`, or `engine`: its process has ended.
    :ivar problem: there was another reply than a good one.
    """

    what: str
    began: float
    ended: float
    problem: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Watch:
    """Watches a server as long as the context is open.

    :param pids: the processes that must not end.
    :ivar waited: what has been seen.
    """

    def __init__(self, port: int, pids: tuple[int, ...]) -> None:
        self.waited: list[Waited] = []
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_watch, args=(port, pids, sender), daemon=True)
        self._process.start()
        sender.close()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.join()
        self._thread.join()

    def _receive(self) -> None:
        try:
            while True:
                self.waited.append(self._receiver.recv())
        except (EOFError, OSError):
            return

    def seen(self, what: str, after: float = 0.0) -> list[float]:
        """The seconds of each wait of this kind."""
        return [one.seconds for one in self.waited if one.what == what and one.began >= after]

    @property
    def engine_ended(self) -> bool:
        return any(one.what == ENGINE for one in self.waited)


def _watch(port: int, pids: tuple[int, ...], sender: Connection) -> None:
    lock = threading.Lock()

    def report(waited: Waited) -> None:
        with lock:
            sender.send(waited)

    victim = threading.Thread(target=_ask_on, args=(port, TOKEN, STREAM, b"data:", report), daemon=True)
    victim.start()
    threading.Thread(target=_ask_on, args=(port, "ping", PING, b"\r\n\r\n", report), daemon=True).start()
    while all(map(alive, pids)):
        time.sleep(PAUSE_S)
    now = time.monotonic()
    report(Waited(ENGINE, now - 2 * PAUSE_S, now, "its process has ended"))
    victim.join()


def _ask_on(port: int, what: str, request: bytes, mark: bytes, report: Callable[[Waited], None]) -> None:
    """Asks again and again, each time on a new connection."""
    while True:
        began, received, problem = time.monotonic(), b"", ""
        try:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                connection.sendall(request)
                while mark not in received and (data := connection.recv(65536)):
                    received += data
                ended = time.monotonic()
                while connection.recv(65536):
                    pass
                if mark not in received or b" 200 " not in received.partition(b"\r\n")[0]:
                    problem = repr(received[:300])
        except OSError as error:
            ended, problem = time.monotonic(), repr(error)
        report(Waited(what, began, ended, problem))
        time.sleep(PAUSE_S)
