"""Explains why an engine did not start.

The engine core prints the reason of a failed start to its log. Its parent process only gets "Engine core initialization
failed. See root cause above". /ping's reason and SageMaker's failure reason must give the real one.

The core inherits standard output and error, and so does the compiler that runs in it. While an engine starts, both
streams go through a pipe, which keeps their end and passes all of it on. The core keeps the pipe as long as it lives,
so the thread that copies from it lives as long, too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from handler.artifacts.lease.compile_errors import CompileFailed, CompileKilled
from handler.artifacts.lease.compile_failure_cause import compile_failure
from handler.engine import core_end
from handler.engine.core_end import core_exits
from handler.engine.engine import Engine
from handler.errors import EndpointError, StartFailed
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware import host_memory
from handler.start_failure import fix_for
from handler.startup.lifecycle import Lifecycle

StartEngine = Callable[[EnginePlan], Engine]
MOST_BYTES = 256 * 1024
STREAMS = (1, 2)
# How many seconds `text` waits for the last output of a process that ended.
WAIT_SECONDS = 1.0


@contextmanager
def diagnosed_start() -> Iterator[None]:
    """Start an engine within it. A failure becomes an error with the core's last error or signal.

    :raises CompileFailed, CompileKilled: the start failed. An EndpointError stays as it is.
    """
    try:
        with output_tail() as output:
            yield
    except EndpointError:
        raise
    except Exception as error:
        raise compile_failure(error, core_exits(error), output.text()) from error


@contextmanager
def explained_start_failure(lifecycle: Lifecycle) -> Iterator[None]:
    """Start an engine within it. A failure becomes StartFailed: the stage, the core's last error or signal, the fix."""
    kills = host_memory.oom_kills()
    try:
        with diagnosed_start():
            yield
    except CompileKilled as failure:
        number = getattr(signal.Signals, failure.signal, signal.SIGKILL)
        why = f"the engine's process {core_end.described([-number], host_memory.oom_kills() - kills)}"
        raise StartFailed(lifecycle.status.stage, f"{why}. Use an instance with more memory.") from failure
    except CompileFailed as failure:
        raise StartFailed(lifecycle.status.stage, f"{failure.reason}. {fix_for(failure.reason)}") from failure


class OutputTail:
    """The end of the output. `text` may be called at any time."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def text(self) -> str:
        """The last MOST_BYTES, and at most one chunk more. Waits a moment for output that is still in the pipe."""
        for thread in self._threads:
            thread.join(WAIT_SECONDS / len(self._threads))
        with self._lock:
            return b"".join(self._chunks).decode(errors="replace")

    def copy(self, source: int, target: int) -> None:
        """Starts a thread that copies one descriptor to another, until every writer has closed it."""
        thread = threading.Thread(target=self._copy, args=(source, target), name="output", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _copy(self, source: int, target: int) -> None:
        while chunk := os.read(source, 65536):
            with self._lock:
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._chunks[0]) > MOST_BYTES:
                    self._size -= len(self._chunks.popleft())
            with suppress(OSError):  # nobody reads the target; the processes that print must not block
                _write(target, chunk)
        os.close(source)
        os.close(target)


@contextmanager
def output_tail() -> Iterator[OutputTail]:
    """Within it, the standard output and error of this process and of its children are kept."""
    tail = OutputTail()
    saved: list[tuple[int, int]] = []
    _flush()
    try:
        for stream in STREAMS:
            original, (source, sink) = os.dup(stream), os.pipe()
            saved.append((stream, original))
            os.dup2(sink, stream)
            os.close(sink)
            tail.copy(source, os.dup(original))
        yield tail
    finally:
        _flush()
        for stream, original in saved:
            os.dup2(original, stream)
            os.close(original)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _write(target: int, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[os.write(target, left) :]
