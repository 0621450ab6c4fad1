"""What an exchange tells the observer: there and then, or where a log is written, in a thread that may wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from container.requests.request_record import RequestRecord
from container.telemetry.request_observer import RequestObserver

logger = logging.getLogger(__name__)
# The last lines are given so long when the process ends.
LAST_SECONDS = 2.0


class DeferredObserver:
    """A log's reader may be slow: nothing that writes to it runs on the loop."""

    def __init__(self, observer: RequestObserver) -> None:
        self._observer = observer
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if observer.logs:
            self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
            self._thread.start()

    def started(self, record: RequestRecord, body: bytes) -> None:
        if self._thread is None:
            self._observer.started(record, body)
        else:
            self._queue.put(lambda: self._observer.started(record, body))

    def ended(self, record: RequestRecord) -> None:
        if self._thread is None:
            self._observer.ended(record)
        else:
            seconds = record.seconds()
            self._queue.put(lambda: self._observer.ended(record, seconds))

    def close(self) -> None:
        """Waits for the last lines. From any thread but the loop's."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(LAST_SECONDS)

    def _write(self) -> None:
        while (note := self._queue.get()) is not None:
            try:
                note()
            except Exception:  # one line's trouble is not the next one's
                logger.exception("a request cannot be logged")
