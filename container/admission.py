"""How many requests are in flight, and whether one more may be: the count that drain waits for."""

from __future__ import annotations

import threading
from types import TracebackType

from handler.errors import TooManyRequests


class Admission:
    """A counter with a limit. `with admission:` holds a place from acceptance to the reply's last byte."""

    __slots__ = ("_changed", "_count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        return self._count

    def enter(self) -> None:
        """:raises TooManyRequests: every place is taken."""
        with self._changed:
            if self._count >= self.limit:
                raise TooManyRequests(self.limit)
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._count -= 1
            if self._count == 0:
                self._changed.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """True once nothing is in flight; False when `timeout` seconds have passed before."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
