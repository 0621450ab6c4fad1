"""gunicorn's threaded worker with an engine in it, and a drain that answers 503 instead of refusing connections.

Seen on gunicorn 27 (workers/gthread.py, arbiter.py): on SIGTERM the master closes its listeners and signals the
worker; a worker that leaves its own accept loop running goes on accepting, which is what lets a client that comes
during the drain read "503, draining" rather than a reset.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from itertools import islice
from types import FrameType

from gunicorn.workers.gthread import TConn, ThreadWorker

from container.connection.lingering_close import LingeringClose
from container.fast_path.deferred_observer import DeferredObserver
from container.fast_path.dispatcher import Dispatcher, ThreadPath, fast_path_available
from container.fast_path.reply_head import ReplyHeads
from container.fast_path.request_handler import FastPathContext
from container.requests import request_body as body
from container.requests.unparsed_requests import refusal
from container.server import malloc_arenas as arenas
from container.server import memory_return as reclaim
from container.server.engine_watchdog import watch_engine
from container.server.file_descriptors import FIXES, AcceptPause, reserve_is_reached
from container.service import Service
from container.telemetry.neuron_monitor import watched_devices
from handler.errors import Draining
from handler.startup.lifecycle import ServingStatus
from handler.startup.start import start

# gunicorn's arbiter ends, with this status, when a worker does (Arbiter.WORKER_BOOT_ERROR): no restart can help.
EXIT_CANNOT_START = 3
# The engine failed after it had served: the arbiter starts another worker, within the restart budget.
EXIT_ENGINE_FAILED = 70
# Seconds a thread may hold the interpreter while another waits. Python's 5 ms lets the parsing of one request delay the
# tokens of all others by as much; measured in benchmarks/README.md.
SWITCH_INTERVAL = 0.0005
# A client that takes nothing of a whole reply for so long is cut off; the engine's loop has its own limit for streams.
SEND_SECONDS = 60.0
# Out of file descriptors: so many connections are closed at a time, each of which has been idle for so many seconds.
CLOSED_AT_A_TIME = 32
IDLE_SECONDS = 1.0


class EngineWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn is untyped
    """One serving process: gunicorn's threads, the engine's loop, the start and the watchdog.

    It leads a process group of its own, so that the master can end the engine's core with it whatever happened, and
    so that Ctrl-C in a terminal reaches the master alone.
    """

    service: Service
    lingering: LingeringClose
    accept_pause: AcceptPause
    _lane: Dispatcher | None = None

    def init_process(self) -> None:
        os.setpgid(0, 0)
        arenas.limit()
        reclaim.begin()
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.service = self.app.new_service()
        self.lingering = LingeringClose()
        super().init_process()

    def handle(self, conn: TConn) -> object:
        """In a pool thread: headers that trickle in hold a thread no longer than a body may."""
        whole, part = divmod(SEND_SECONDS, 1)
        timeout = struct.pack("ll", int(whole), int(part * 1e6))
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        conn.reading = self.service.deadlines.begin(conn.sock, body.BODY_SECONDS)
        try:
            return super().handle(conn)
        finally:
            self.service.deadlines.end(conn.reading)

    def handle_request(self, req: object, conn: TConn) -> object:
        self.service.deadlines.end(conn.reading)  # the headers are here; what reads the body sets its own
        try:
            return super().handle_request(req, conn)
        except BlockingIOError:
            raise StopIteration(f"the client took nothing for {SEND_SECONDS:g} s") from None

    def handle_error(self, req: object, client: socket.socket, addr: object, exc: BaseException) -> None:
        """A request that is no HTTP, or a failure that no view has caught: our error object in place of HTML."""
        reply = refusal(exc)
        try:
            client.settimeout(SEND_SECONDS)
            client.sendall(reply)
        except OSError:
            return

    @property
    def lane(self) -> Dispatcher | None:
        """Where connections go, from when the engine is ready. Of the main thread."""
        if (
            self._lane is None
            and self.service.lifecycle.status.state is ServingStatus.READY
            and fast_path_available(self.service)
        ):
            engine = self.service.engine
            assert engine is not None, "`fast_path_available` has seen it"
            ground = FastPathContext(
                self.service,
                engine.loop.loop,
                ReplyHeads(self.reply_headers()),
                DeferredObserver(self.service.observer),
            )
            self._lane = Dispatcher(ground, ThreadPath(self.enqueue_req, self._closed), self.cfg.keepalive)
        return self._lane if self.alive else None

    def reply_headers(self) -> tuple[tuple[str, str], ...]:
        """That every reply has, whatever it answers."""
        return ()

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in FIXES:
                self.accept_pause.begin(listener, error.errno)
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        if reserve_is_reached(client.fileno()):
            self.accept_pause.begin(listener, errno.EMFILE)
        self.nr_conns += 1
        conn = TConn(self.cfg, client, address, listener.getsockname())
        lane = self.lane
        if lane is None:
            self.enqueue_req(conn)
        else:
            lane.take(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """One turn of the main loop."""
        super().wait_for_and_dispatch_events(self.accept_pause.timeout(timeout))
        error = self.accept_pause.take_error()
        if error is not None:  # handled here: an event of this turn may have been that of a connection now closed
            self.accept_pause.log(error, self.nr_conns)
            self._close_idle()
        self.accept_pause.end()

    def _close_idle(self) -> None:
        """Closes the connections that have waited longest for a request, gunicorn's and the lane's."""
        latest = time.monotonic() - IDLE_SECONDS + self.cfg.keepalive
        for waiting in (self.keepalived_conns, self.pending_conns):
            for conn in islice(waiting, CLOSED_AT_A_TIME):  # in the order in which they began to wait
                if conn.timeout <= latest:
                    conn.timeout = 0.0
        self.murder_keepalived()
        self.murder_pending()
        if self._lane is not None:
            self._lane.close_idle(CLOSED_AT_A_TIME, IDLE_SECONDS)

    def _closed(self, conn: TConn, graceful: bool) -> None:
        """From the engine's loop: a connection that it had is to be closed."""
        if graceful:
            self._close(conn)
        else:
            conn.close()
            self.method_queue.defer(self._left)

    def _left(self) -> None:
        self.nr_conns -= 1

    def finish_request(self, conn: TConn, fs: Future[object]) -> None:
        """In the main thread, which also accepts: it must not wait, as gunicorn's does, 2 s for each client that
        does not close its end, nor reset one that sends more than 64 KiB after its reply."""
        if fs.cancelled() or fs.exception() is not None:
            super().finish_request(conn, fs)
        elif fs.result() is True and self.lane is not None:
            self.lane.take(conn, conn.parser.unreader.take_buffered())
        elif fs.result():
            super().finish_request(conn, fs)
        else:
            self._close(conn)

    def _close(self, conn: TConn) -> None:
        self.lingering.close(conn.sock, partial(self.method_queue.defer, self._left))

    def run(self) -> None:
        self.accept_pause = AcceptPause(self.poller, self.accept)
        self.begin()
        try:
            super().run()
        finally:
            if self._lane is not None:
                self._lane.ground.notes.close()
            engine, self.service.engine = self.service.engine, None  # its end is no failure now
            if engine is not None:
                engine.stop()
            if self.service.models is not None:
                self.service.models.stop()
            if self.service.monitor is not None:
                self.service.monitor.stop()
            if self.service.observer.tracer is not None:
                self.service.observer.tracer.stop()
            leave(0)  # threads that an import still holds would keep the interpreter past SageMaker's 30 s

    def begin(self) -> None:
        """Starts what runs beside the routes."""
        self.service.monitor = watched_devices(self.service.config.neuron_monitor)
        if self.service.observer.emf is not None:
            self.service.observer.emf.begin()
        threading.Thread(target=start, args=(self.service,), name="start", daemon=True).start()
        threading.Thread(
            target=watch_engine, args=(self.service, self.end), name="engine-watchdog", daemon=True
        ).start()

    def end(self) -> None:
        """The engine has failed: leave without waiting for anything of it."""
        leave(EXIT_ENGINE_FAILED if self.service.lifecycle.served else EXIT_CANNOT_START)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: what runs may finish, what comes is told to go elsewhere, then gunicorn's own way out."""
        if self.service.lifecycle.status.state is not ServingStatus.DRAINING:
            self.service.lifecycle.drain()
            threading.Thread(target=self._drain, args=(sig, frame), name="drain", daemon=True).start()

    def _drain(self, sig: int, frame: FrameType | None) -> None:
        self._finish(self.service.config.drain)
        if self._lane is not None:
            self._lane.stop()
        self.lingering.hurry()
        super().handle_exit(sig, frame)

    def _finish(self, seconds: float) -> None:
        """Returns when every request of this process has ended, or was ended."""
        service = self.service
        if not service.admission.wait_empty(seconds):
            for engine in service.engines():
                engine.fail_requests(Draining())  # a stream that is cut off says so in its last event
            service.admission.wait_empty(1.0)


def leave(status: int) -> None:
    """Ends this process there and then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
