"""A time limit for everything that a client sends: a client that sends one byte now and then must not hold a thread.

A socket's own time-out applies to each read. Here every socket is registered while it is read from. A thread checks
the registered sockets regularly and shuts down the reading of those that are late. The reader then sees the end of
the data.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

# The interval between two checks, as a share of the limit.
PRECISION = 0.1


@dataclass(slots=True)
class Reading:
    """One socket that is being read from.

    :ivar deadline: monotonic seconds.
    :ivar late: the deadline has passed and the reading was shut down.
    """

    connection: socket.socket
    deadline: float
    late: bool = False


class ReadTimeouts:
    """The sockets that are being read from. The checking thread starts with the first socket."""

    __slots__ = ("_lock", "_readings", "_sweeping")

    def __init__(self) -> None:
        self._readings: dict[int, Reading] = {}
        self._lock = threading.Lock()
        self._sweeping = False

    def begin(self, connection: socket.socket, seconds: float) -> Reading:
        """Registers a socket. Its reading is shut down if it has not ended within `seconds`."""
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
                if now > reading.deadline and not reading.late:
                    reading.late = True
                    try:
                        reading.connection.shutdown(socket.SHUT_RD)
                    except OSError:
                        continue
