"""A copy of the serving process that is made once vLLM is imported, and that becomes the engine core later.

vLLM spawns the core on a CPU, and a spawned process imports vLLM a second time: 7 s of processor time and 400 MB. This
process is forked instead. When vLLM spawns its core, the forked process gets what `multiprocessing` would have sent to
a new one (CPython, multiprocessing/popen_spawn_posix.py), and goes on as a new one would.

A fork copies one thread, and the locks that others hold at that moment stay locked in the copy. So it is made

- in a thread that has computed nothing: OpenMP's threads belong to the thread that has started them, and the copy
  starts its own. OpenBLAS, which NumPy imports, ends its threads before a fork and starts them again after it;
- while no thread imports a module. Python itself renews its locks for logging and threads, and the container's standard
  output and error have none (container/standard_streams.py).

On Neuron vLLM forks the core itself, from a process with the same threads and at a later time.

The copy keeps no file of the serving process, no signal handler and nothing for the garbage collector to walk. What a
new process would inherit when vLLM spawns it is sent: the environment, and standard output and error.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import gc
import io
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn
from multiprocessing.context import SpawnProcess, set_spawning_popen
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

from handler.processes import current_environment

# How vLLM names the core's process (v1/engine/utils.py, `CoreEngineProcManager`). 0.9 gives it no name.
CORE = ("EngineCore", "SpawnProcess")
# Variables with these prefixes take effect only when a process starts. Two others may differ: OpenCV, which vLLM
# imports, sets LD_LIBRARY_PATH in each process, and vLLM sets OMP_NUM_THREADS to the number that torch has chosen.
AT_THE_START = ("LD_PRELOAD", "KMP_", "GLIBC_", "MALLOC_")
HEADER = 8  # bytes: the length of the environment
STREAMS = (1, 2)
READY = b"r"
SWITCH_INTERVAL = 0.005  # Python's default, in seconds


class WaitingProcess:
    """Forks the process. It ends by itself when this process ends.

    :param environment: with which this process was started.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        from unittest.mock import patch  # vLLM imports it, too: it would delay the start before that

        self._environment = environment
        self._channel, theirs = socket.socketpair()
        self.sentinel, held = os.pipe()
        # A core that is ended by a signal leaves semaphores, which the tracker removes. It need not warn of that.
        with patch.object(sys, "warnoptions", [*sys.warnoptions, "ignore:resource_tracker:UserWarning"]):
            tracker = resource_tracker.getfd()
        assert tracker is not None, "it has just been started"
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with _no_imports():
            pid = os.fork()
        if pid == 0:
            _wait(theirs.detach(), tracker, held, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._pid: int | None = pid
        theirs.close()
        os.close(held)

    @contextmanager
    def becomes_core(self) -> Iterator[None]:
        """Within it, the first core that vLLM spawns is this process. Whatever does not fit is spawned as ever."""
        from unittest.mock import patch

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
        if _at_the_start(self._environment) != _at_the_start(current_environment()):
            self.end()
            return None
        variables = reduction.ForkingPickler.dumps(current_environment())
        try:
            socket.send_fds(self._channel, [len(variables).to_bytes(HEADER, "big")], STREAMS)
            self._channel.sendall(variables)
            lives = self._channel.recv(1) == READY
            self._channel.sendall(process)
        except OSError:
            lives = False
        if not lives:
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


@contextmanager
def _no_imports() -> Iterator[None]:
    """Waits until no thread imports a module. Within it, none begins to."""
    while True:
        _imp.acquire_lock()
        locks = [found() for found in _frozen_importlib._module_locks.values()]  # type: ignore[attr-defined]
        if all(lock is None or lock.owner is None for lock in locks):
            break
        _imp.release_lock()
        time.sleep(0.01)
    try:
        yield
    finally:
        _imp.release_lock()


def _wait(handle: int, tracker: int, held: int, mask: set[int | signal.Signals]) -> NoReturn:
    """Runs in the process: waits for a process to become, and becomes it.

    :param handle: a socket, which then stays as the pipe of a spawned process.
    :param tracker: the pipe of multiprocessing's resource tracker.
    :param held: is open as long as the process lives.
    :param mask: the signals to block from now on. All of them are blocked until the process has its own handlers.
    """
    status = 1
    try:
        _forget({0, *STREAMS, handle, tracker, held})
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with socket.socket(fileno=os.dup(handle)) as channel:
            header, streams, _, _ = socket.recv_fds(channel, HEADER, len(STREAMS))
            if not header:
                os._exit(0)  # the serving process has ended, or needs no core
            environment = channel.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
            channel.sendall(READY)
        for stream, received in zip(STREAMS, streams, strict=True):
            os.dup2(received, stream)
            os.close(received)
        _use(reduction.ForkingPickler.loads(environment))
        sys.argv = [sys.argv[0], "--multiprocessing-fork"]  # as the command of a spawned process
        spawn.spawn_main(pipe_handle=handle, tracker_fd=tracker)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _forget(kept: set[int]) -> None:
    """Drops what the serving process has made of itself. A new process would not have it.

    :param kept: the file descriptors that stay. The others are not closed, because the objects that own them would
        close them a second time; they lead to /dev/null.
    """
    gc.freeze()
    threading.current_thread().name = "MainThread"
    sys.setswitchinterval(SWITCH_INTERVAL)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in [entry.name for entry in Path("/proc/self/fd").iterdir()]:
        if int(name) not in {*kept, nowhere}:
            os.dup2(nowhere, int(name), inheritable=False)


def _use(environment: dict[str, str]) -> None:
    """Changes only what differs: setproctitle finds the process's title through the first variable's address."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment.items() - os.environ.items())


def _at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_THE_START)}
