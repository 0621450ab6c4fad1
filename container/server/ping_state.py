"""The answer to /ping, in memory that the serving process writes and the acceptor's process reads.

container/routes/ping.py decides on it.

The reader needs no lock: a writer changes the slot that is not being read, and then the number of the current slot.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time

COUNT = struct.Struct("=Q")
# Monotonic seconds of the write, HTTP status, bytes of the body.
HEAD = struct.Struct("=dHI")
SLOT_BYTES = 64 * 1024
MAX_BODY = SLOT_BYTES - HEAD.size

# In place of a status: the serving process is healthy, and answers /ping itself, with custom code.
PASSED_ON = 0


class PingState:
    """One reply, shared by this process and those that it forks.

    :param stall: seconds without a write after which a serving process that was healthy counts as stalled.
    """

    def __init__(self, stall: float) -> None:
        self._stall = stall
        self._memory = mmap.mmap(-1, COUNT.size + 2 * SLOT_BYTES)
        self._lock = threading.RLock()  # a signal's handler may write too
        self.write(503, b'{"status":"starting","stage":"bind port","stage_seconds":0.0,"seconds":0.0}')

    def write(self, status: int, body: bytes) -> None:
        """Sets the reply. It also says that the serving process makes progress."""
        if len(body) > MAX_BODY:
            body = b"{}"
        with self._lock:
            count = COUNT.unpack_from(self._memory)[0] + 1
            start = COUNT.size + count % 2 * SLOT_BYTES
            HEAD.pack_into(self._memory, start, time.monotonic(), status, len(body))
            self._memory[start + HEAD.size : start + HEAD.size + len(body)] = body
            COUNT.pack_into(self._memory, 0, count)

    def read(self) -> tuple[int, bytes]:
        """The status and the body, or PASSED_ON; 500 if the serving process was healthy and has stalled since."""
        while True:
            (count,) = COUNT.unpack_from(self._memory)
            start = COUNT.size + count % 2 * SLOT_BYTES
            written, status, size = HEAD.unpack_from(self._memory, start)
            body = self._memory[start + HEAD.size : start + HEAD.size + size]
            if COUNT.unpack_from(self._memory) == (count,):
                break
        silent = time.monotonic() - written
        if status in (200, PASSED_ON) and silent > self._stall:
            reason = f"the serving process has made no progress for {silent:.0f} s"
            return 500, f'{{"status":"stalled","stage":"ready","reason":"{reason}"}}'.encode()
        return status, body
