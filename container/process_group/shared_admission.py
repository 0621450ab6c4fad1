"""Admission over all processes: one limit of requests in flight, counted in the shared state."""

from __future__ import annotations

from container.process_group.shared_state import Member, SharedState
from handler.errors import TooManyRequests
from handler.startup.admission import Admission


class SharedAdmission(Admission):
    """An `Admission` whose limit holds for all processes.

    `count` is the number of this process's own requests, which its drain waits for. `total` is the number of all.
    """

    def __init__(self, shared_state: SharedState, slot: int) -> None:
        self._shared_state, self._slot = shared_state, slot
        super().__init__(shared_state.max_in_flight)

    @property
    def limit(self) -> int:
        return self._shared_state.max_in_flight

    @limit.setter
    def limit(self, requests: int) -> None:
        if self._slot == 0:
            self._shared_state.max_in_flight = requests

    @property
    def total(self) -> int:
        return self._shared_state.in_flight()

    @property
    def retry_after(self) -> int:
        """Seconds. Each serving process is assumed to finish requests as fast as this one."""
        return max(1, super().retry_after // max(1, len(self._shared_state.members(Member.SERVING))))

    def enter(self) -> None:
        with self._changed:
            if not self._shared_state.enter(self._slot):
                raise TooManyRequests(self.limit, self.retry_after)
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._shared_state.leave(self._slot)
            super().leave()
