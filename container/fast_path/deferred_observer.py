"""The request observer of the fast path: runs inline, or on a logging thread if logging may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from container.requests.request_record import RequestRecord
from container.telemetry.request_observer import RequestObserver

logger = logging.getLogger(__name__)
# Time for the last log lines when the process ends.
LAST_SECONDS = 2.0


class DeferredObserver:
    """Calls the observer without blocking the loop: whoever reads the log may be slow."""

    def __init__(self, observer: RequestObserver) -> None:
        self._observer = observer
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if observer.logs:
            self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
            self._thread.start()

    def started(self, record: RequestRecord, body: bytes) -> None:
        self._call(partial(self._observer.started, record, body))

    def ended(self, record: RequestRecord) -> None:
        self._call(partial(self._observer.ended, record, record.seconds()))

    def _call(self, call: Callable[[], None]) -> None:
        if self._thread is None:
            call()
        else:
            self._queue.put(call)

    def close(self) -> None:
        """Waits for the last log lines. Never called on the loop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(LAST_SECONDS)

    def _write(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call()
            except Exception:  # the next lines are written all the same
                logger.exception("a request cannot be logged")
