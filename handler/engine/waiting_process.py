"""A process that imports what an engine core needs before the core's configuration is known, and then becomes the core.

vLLM spawns the core once the configuration is complete, and the new process then imports vLLM, which takes as long as
in the serving process. A waiting process begins at once. When vLLM spawns its core, the waiting process gets what
`multiprocessing` would have sent to a new one (CPython, multiprocessing/popen_spawn_posix.py), and goes on as it would.
It becomes the core, so no second copy stays in memory; a fork server would keep its own.

What a new process would inherit at that moment is sent with it: the environment, and standard output and error.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.context import SpawnProcess, set_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any
from unittest.mock import patch

from handler.engine.fast_import import without_collection

# How vLLM names the core's process (v1/engine/utils.py, `CoreEngineProcManager`).
CORE = "EngineCore"
# Variables with these prefixes take effect only when a process starts. Two others may differ: OpenCV, which vLLM
# imports, sets LD_LIBRARY_PATH in each process, and vLLM sets OMP_NUM_THREADS to the number that torch has chosen.
AT_THE_START = ("LD_PRELOAD", "KMP_", "GLIBC_", "MALLOC_")
IMPORTED = b"i"
HEADER = 8  # bytes: the length of the environment
STREAMS = (1, 2)


class WaitingProcess:
    """Starts the process. It ends by itself when this process ends.

    :param module: what the process imports.
    """

    def __init__(self, module: str) -> None:
        self._environment = dict(os.environ)
        self._channel, theirs = socket.socketpair()
        self.sentinel, held = os.pipe()
        self._imported: bool | None = None
        self._lock = threading.Lock()
        # A core that is ended by a signal leaves semaphores, which the tracker removes. It need not warn of that.
        with patch.object(sys, "warnoptions", [*sys.warnoptions, "ignore:resource_tracker:UserWarning"]):
            tracker = resource_tracker.getfd()
        assert tracker is not None, "it has just been started"
        command = spawn.get_command_line(tracker_fd=tracker, pipe_handle=theirs.fileno())
        here = f"{__name__} import wait; wait({module!r}, {theirs.fileno()}, {tracker})"
        command[-2] = f"import sys; sys.path[:] = {sys.path!r}; from {here}"
        self._pid: int | None = util.spawnv_passfds(
            os.fsencode(sys.executable), command, [tracker, theirs.fileno(), held]
        )
        theirs.close()
        os.close(held)

    def imported(self) -> bool:
        """Waits until the process has imported the module. False if it has ended."""
        with self._lock:
            if self._imported is None:
                self._imported = self._channel.recv(1) == IMPORTED
            return self._imported

    @contextmanager
    def becomes_core(self) -> Iterator[None]:
        """Within it, the first core that vLLM spawns is this process. Whatever does not fit is spawned as ever."""
        spawned = SpawnProcess._Popen

        def start(process: BaseProcess) -> Any:
            return _Handover(process, self) if process.name.startswith(CORE) else spawned(process)

        with patch.object(SpawnProcess, "_Popen", staticmethod(start)):
            yield

    def become(self, process: bytes) -> int | None:
        """Sends the pickled process and returns its id. None: another one must be spawned.

        :param process: what `multiprocessing` sends to a spawned process.
        """
        if self._pid is None:
            return None
        if not self.imported() or _at_the_start(self._environment) != _at_the_start(dict(os.environ)):
            self.end()
            return None
        environment = reduction.ForkingPickler.dumps(dict(os.environ))
        try:
            socket.send_fds(self._channel, [len(environment).to_bytes(HEADER, "big")], STREAMS)
            self._channel.sendall(environment)
            self._channel.sendall(process)
        except OSError:  # it has ended
            self.end()
            return None
        pid, self._pid = self._pid, None
        return pid

    def end(self) -> None:
        """Ends the process, unless it has become a core."""
        pid, self._pid = self._pid, None
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(self.sentinel)


class _Handover(popen_spawn_posix.Popen):
    """A spawned process that may be one that waited."""

    _fds: list[int]

    def __init__(self, process: BaseProcess, waiting: WaitingProcess) -> None:
        self._waiting = waiting
        super().__init__(process)

    def _launch(self, process: BaseProcess) -> None:
        content = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump(spawn.get_preparation_data(process.name), content)
            reduction.dump(process, content)
        finally:
            set_spawning_popen(None)
        # File descriptors are inherited at the start of a process only.
        pid = None if self._fds else self._waiting.become(content.getvalue())
        if pid is None:
            self._fds = []
            super()._launch(process)  # type: ignore[misc]  # typeshed does not have it
        else:
            self.pid, self.sentinel = pid, self._waiting.sentinel


def wait(module: str, handle: int, tracker: int) -> None:
    """Runs in the process: imports the module, waits for a process to become, and becomes it.

    :param handle: a socket, which then stays as the pipe of a spawned process.
    :param tracker: the pipe of multiprocessing's resource tracker.
    """
    resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]  # as `spawn_main`, but before the import
    with without_collection():
        __import__(module)
    with socket.socket(fileno=os.dup(handle)) as channel:
        channel.sendall(IMPORTED)
        header, streams, _, _ = socket.recv_fds(channel, HEADER, len(STREAMS))
        if not header:
            os._exit(0)  # the serving process has ended, or needs no core
        environment = channel.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
    for stream, received in zip(STREAMS, streams, strict=True):
        os.dup2(received, stream)
        os.close(received)
    _use(reduction.ForkingPickler.loads(environment))
    spawn.spawn_main(pipe_handle=handle, tracker_fd=tracker)


def _use(environment: dict[str, str]) -> None:
    """Changes only what differs: setproctitle finds the process's title through the first variable's address."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment.items() - os.environ.items())


def _at_the_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_THE_START)}
