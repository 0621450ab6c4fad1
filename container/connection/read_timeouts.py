"""A time limit for what a client sends, as a whole: one byte now and then must not hold a place for hours.

A socket's own time-out is for each read. Here sockets are noted down while they are read from, and a thread that looks
at them now and then ends the reading of those that are late; whoever reads then sees the end of the data.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A late socket is found within this share of its limit.
PRECISION = 0.1


@dataclass(slots=True)
class Reading:
    """One socket being read from. `late` is set when its time is up."""

    connection: socket.socket
    until: float
    late: bool = False


class ReadTimeouts:
    """The sockets being read from. Its thread starts with the first of them."""

    __slots__ = ("_lock", "_readings", "_sweeping")

    def __init__(self) -> None:
        self._readings: dict[int, Reading] = {}
        self._lock = threading.Lock()
        self._sweeping = False

    @contextmanager
    def watching(self, connection: socket.socket, seconds: float) -> Iterator[Reading]:
        reading = self.begin(connection, seconds)
        try:
            yield reading
        finally:
            self.end(reading)

    def begin(self, connection: socket.socket, seconds: float) -> Reading:
        reading = Reading(connection, time.monotonic() + seconds)
        self._readings[id(reading)] = reading
        if not self._sweeping:
            with self._lock:
                if not self._sweeping:
                    self._sweeping = True
                    interval = seconds * PRECISION
                    threading.Thread(target=self._sweep, args=(interval,), name="read-deadlines", daemon=True).start()
        return reading

    def end(self, reading: Reading) -> None:
        self._readings.pop(id(reading), None)

    def _sweep(self, interval: float) -> None:
        while True:
            time.sleep(interval)
            now = time.monotonic()
            for reading in list(self._readings.values()):
                if now > reading.until and not reading.late:
                    reading.late = True
                    try:
                        reading.connection.shutdown(socket.SHUT_RD)
                    except OSError:
                        continue
