"""The process that tries grammars, and the children of it that do."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from handler.errors import GrammarNotTried

logger = logging.getLogger(__name__)
START_SECONDS: Final = 240.0
# A trial whose process gets too little of the processor ends after so many seconds.
WALL_SECONDS: Final = 60.0
# After a start that has failed, the next one is tried so many seconds later. The machine may have had no memory.
RETRY_SECONDS: Final = 300.0
# Signals that come from outside: the kernel that needs memory, or an operator. A grammar's end has others.
OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM})
UNREADABLE: Final = "the grammar library cannot compile it"


class TrialUnavailable(Exception):
    """The process that tries grammars cannot be started now, so no grammar can be tried."""


class TakesLonger(Exception):
    """A trial has used its processor time."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial has found.

    :param problem: what is wrong with the grammar. None: the core can compile it.
    :param seconds: of processor time that it took. Infinite if it could not be tried.
    """

    problem: str | None
    seconds: float = math.inf


class TrialProcess:
    """Starts the process when a child of it is needed. Thread-safe.

    :param command: of the process. Its standard input is a socket, on which it is sent a child's time and pipe.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False
        self._failed = -math.inf  # monotonic seconds of the last start that has failed

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def child(self, seconds: float) -> Connection:
        """The pipe to a new child, which takes so many seconds of processor time for a grammar.

        :raises TrialUnavailable: the process cannot be started now.
        """
        with self._lock:
            control = self._started()
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(control, [str(seconds).encode()], [theirs.fileno()])
            return Connection(ours.detach())

    def _started(self) -> socket.socket:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._closed or time.monotonic() < self._failed + RETRY_SECONDS:
            raise TrialUnavailable
        self._end()
        began = time.monotonic()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:  # standard error is the container's log
            self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        self._control.settimeout(START_SECONDS)
        try:
            ready = self._control.recv(16)
        except OSError:
            ready = b""
        if not ready:
            self._end()
            self._failed = time.monotonic()
            logger.warning(
                "new grammars are not tried before the engine compiles them, for %.0f s: the process that tries them "
                "ended, or did not start in time; the log has its own account",
                RETRY_SECONDS,
            )
            raise TrialUnavailable
        logger.info("the process that tries grammars has started in %.1f s", time.monotonic() - began)
        return self._control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None

    def close(self) -> None:
        """Ends the process, and its children with it."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # a start that is waited for ends too
        with self._lock:
            self._end()


class TrialLane:
    """Has a child try one grammar after the other. A grammar that ends a child does not end the next one's trial.

    :param seconds: of processor time that a grammar may take.
    """

    def __init__(self, process: TrialProcess, seconds: float) -> None:
        self.seconds = seconds
        self._process = process
        self._lock = threading.Lock()
        self._pipe: Connection | None = None
        self._used = False
        self.pid: int | None = None

    def result(self, kind: str, spec: str) -> TrialResult:
        """Tries a grammar. If a child ends that has tried others before, another tries the grammar again.

        :raises TakesLonger: it has used the time.
        :raises GrammarNotTried: the child has not had its time, or was ended from outside.
        :raises TrialUnavailable: the process cannot be started now.
        """
        request = json.dumps({"kind": kind, "spec": spec}).encode()
        with self._lock:
            while True:
                pipe, used = self._opened(), self._used
                try:
                    answer = self._answer(pipe, request)
                except (EOFError, OSError):  # the whole process has ended, and its children were killed with it
                    answer = {"signal": signal.SIGKILL}
                if "problem" in answer:
                    return TrialResult(**answer)
                self.close()
                if answer["signal"] == signal.SIGPROF:
                    raise TakesLonger
                logger.warning("a grammar's trial has ended its process (signal %s)", answer["signal"])
                if not used and answer["signal"] in OUTSIDE:
                    raise GrammarNotTried
                if not used:
                    return TrialResult(UNREADABLE)

    def _opened(self) -> Connection:
        """The pipe to the child. What keeps a child from being made says nothing about a grammar."""
        if self._pipe is None:
            try:
                self._pipe = self._process.child(self.seconds)
                self.pid = int(self._received(self._pipe))
            except (EOFError, OSError) as error:
                self.close()
                logger.warning("no child could be made to try a grammar: %r", error)
                raise GrammarNotTried from None
        return self._pipe

    def _answer(self, pipe: Connection, request: bytes) -> dict[str, Any]:
        self._used = True
        pipe.send_bytes(request)
        answer: dict[str, Any] = json.loads(self._received(pipe))
        return answer

    def _received(self, pipe: Connection) -> bytes:
        if not pipe.poll(WALL_SECONDS):
            if self.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.close()
            raise GrammarNotTried
        return pipe.recv_bytes()

    def close(self) -> None:
        """Lets the child go. The next grammar gets another."""
        if self._pipe is not None:
            self._pipe.close()
        self._pipe, self._used, self.pid = None, False, None
