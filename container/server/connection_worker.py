"""gunicorn's threaded worker, changed in how it accepts, reads, answers and closes connections.

It hands connections to the fast path, limits the time for headers, pauses `accept` without file descriptors, and closes
connections with a linger. Read in gunicorn 27 (workers/gthread.py).
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice

from gunicorn.http.errors import LimitRequestHeaders
from gunicorn.http.message import Request
from gunicorn.workers.gthread import TConn, ThreadWorker

from container.connection.lingering_close import LingeringClose
from container.connection.received_unreader import ReceivedUnreader
from container.fast_path.deferred_observer import DeferredObserver
from container.fast_path.dispatcher import Dispatcher, ThreadPath, fast_path_available
from container.fast_path.reply_head import ReplyHeads
from container.fast_path.request_handler import FastPathContext
from container.recovery.request_channel import HandedRequest
from container.requests import request_body
from container.requests.unparsed_requests import MissingHost, closing_reply, error_reply
from container.server.connection_channel import ConnectionChannel
from container.server.descriptor_shortage import FIXES, AcceptPause, reserve_is_reached
from container.server.held_requests import HeldRequests
from container.service import Service
from handler.engine.event_loop import LoopThread
from handler.errors import EndpointError
from handler.startup.lifecycle import ServingStatus

# A client that accepts no data of a whole reply for this long is disconnected. Streams have a limit of their own.
SEND_SECONDS = 60.0
# When file descriptors run out: connections that are closed at a time, and how long each must have been idle.
CLOSE_BATCH = 32
IDLE_SECONDS = 1.0


class ConnectionWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn is untyped
    """The connections of one serving process. `EngineWorker` sets the attributes below."""

    service: Service
    lingering: LingeringClose
    accept_pause: AcceptPause
    held_requests: HeldRequests
    sockets: list[ConnectionChannel]
    _dispatcher: Dispatcher | None = None

    def handle(self, conn: TConn) -> object:
        """Reads and answers requests in a pool thread. Slow headers have the same time limit as a body."""
        if received := getattr(conn, "received", None):
            conn.parser.unreader = ReceivedUnreader(conn.sock, received)
            conn.received = None
        if refusal := getattr(conn, "refusal", None):
            with suppress(OSError):
                conn.sock.settimeout(SEND_SECONDS)
                conn.sock.sendall(closing_reply(refusal.status, refusal))
            return False
        if getattr(conn, "head_too_long", False):
            self.handle_error(None, conn.sock, conn.client, LimitRequestHeaders("its end does not come"))
            return False
        whole, part = divmod(SEND_SECONDS, 1)
        timeout = struct.pack("ll", int(whole), int(part * 1e6))
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        conn.reading = self.service.read_timeouts.begin(conn.sock, request_body.BODY_SECONDS)
        try:
            return super().handle(conn)
        finally:
            self.service.read_timeouts.end(conn.reading)
            if self.service.recovery.resumed(conn.sock) is not None:  # no view has taken it
                self.service.admission.leave()

    def handle_request(self, req: Request, conn: TConn) -> object:
        self.service.read_timeouts.end(conn.reading)  # the headers have arrived; the body has its own time limit
        if req.version == (1, 1) and all(name != "HOST" for name, _ in req.headers):
            raise MissingHost
        try:
            return super().handle_request(req, conn)
        except BlockingIOError:
            raise StopIteration(f"the client accepted no data for {SEND_SECONDS:g} s") from None

    def handle_error(self, req: object, client: socket.socket, addr: object, exc: BaseException) -> None:
        """Answers bytes that are not HTTP, and errors that no view has caught, with an error object instead of HTML."""
        reply = error_reply(exc)
        try:
            client.settimeout(SEND_SECONDS)
            client.sendall(reply)
        except OSError:
            return

    @property
    def dispatcher(self) -> Dispatcher | None:
        """Reads the requests of all connections, once the engine is ready. Used by the main thread."""
        service = self.service
        if self._dispatcher is None and service.lifecycle.status.state is ServingStatus.READY:
            fast = fast_path_available(service)
            loop = service.engine.loop if fast and service.engine is not None else LoopThread.start("connections")
            context = FastPathContext(service, loop.loop, ReplyHeads(), DeferredObserver(service.observer))
            thread_path = ThreadPath(self.enqueue_req, self._closed)
            self._dispatcher = Dispatcher(context, thread_path, self.cfg.keepalive, fast=fast)
        return self._dispatcher if self.alive else None

    def set_accept_enabled(self, enabled: bool) -> None:
        self.accept_pause.resume()
        super().set_accept_enabled(enabled)

    def accept(self, listener: ConnectionChannel) -> None:
        try:
            client, address = listener.accept()
        except EOFError as error:
            self.poller.unregister(listener)
            self.sockets = []
            self.service.lifecycle.fail(str(error))
            return
        except OSError as error:
            if error.errno in FIXES:
                self.accept_pause.begin(listener, error.errno)
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        if reserve_is_reached(client.fileno()):
            self.accept_pause.begin(listener, errno.EMFILE)
        self.nr_conns += 1
        conn = TConn(self.cfg, client, address, client.getsockname())
        dispatcher = self.dispatcher
        if dispatcher is None:
            self.enqueue_req(conn)
        else:
            dispatcher.take(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """One iteration of the main loop."""
        super().wait_for_and_dispatch_events(self.held_requests.timeout(self.accept_pause.timeout(timeout)))
        self.held_requests.check()
        error = self.accept_pause.take_error()
        if error is not None:  # only now: this iteration's events may belong to connections that are closed here
            self.accept_pause.log(error, self.nr_conns)
        if error is not None or self.nr_conns >= self.worker_connections:
            self._close_idle()
        self.accept_pause.end()

    def run_handed(self, handed: HandedRequest) -> None:
        """Has a thread answer a request that an earlier process has handed over."""
        conn = self._new_connection(handed)
        conn.init()
        conn.received = bytearray(handed.request)
        conn.data_ready = True
        self.service.recovery.resume(handed)
        self.enqueue_req(conn)

    def refuse_handed(self, handed: HandedRequest, error: EndpointError) -> None:
        """Answers such a request with an error."""
        conn = self._new_connection(handed)
        with suppress(OSError):
            conn.sock.send(closing_reply(error.status, error))
        self._close(conn)

    def _new_connection(self, handed: HandedRequest) -> TConn:
        sock = handed.connection
        self.nr_conns += 1
        try:
            peer = sock.getpeername()
        except OSError:  # the client has left, which the next read notices
            peer = ("", 0)
        return TConn(self.cfg, sock, peer, sock.getsockname())

    def _close_idle(self) -> None:
        """Closes the connections that have been idle longest, gunicorn's and the dispatcher's."""
        latest = time.monotonic() - IDLE_SECONDS + self.cfg.keepalive
        for waiting in (self.keepalived_conns, self.pending_conns):
            for conn in islice(waiting, CLOSE_BATCH):  # in the order in which they began to wait
                if conn.timeout <= latest:
                    conn.timeout = 0.0
        self.murder_keepalived()
        self.murder_pending()
        if self._dispatcher is not None:
            self._dispatcher.close_idle(CLOSE_BATCH, IDLE_SECONDS)
        self.service.held_connections.close_idle(CLOSE_BATCH, IDLE_SECONDS)

    def _closed(self, conn: TConn, graceful: bool) -> None:
        """Closes a connection that the engine's loop had. Called on the loop."""
        if graceful:
            self._close(conn)
        else:
            conn.close()
            self.method_queue.defer(self._left)

    def _left(self) -> None:
        self.nr_conns -= 1

    def finish_request(self, conn: TConn, fs: Future[object]) -> None:
        """Keeps or closes a connection after its reply. Runs in the main thread, which also accepts connections.

        gunicorn's own method waits up to 2 s for each client that does not close its end, and resets one that sends
        more than 64 KiB after its reply. This one does neither.
        """
        if fs.cancelled() or fs.exception() is not None:
            super().finish_request(conn, fs)
        elif self.service.held_connections.when_released(conn.sock, partial(self._close, conn)):
            return
        elif fs.result() is True and self.dispatcher is not None:
            self.dispatcher.take(conn, conn.parser.unreader.take_buffered())
        elif fs.result():
            super().finish_request(conn, fs)
        else:
            self._close(conn)

    def _close(self, conn: TConn) -> None:
        self.lingering.close(conn.sock, partial(self.method_queue.defer, self._left))
