"""One limit of requests in flight over all processes: the board has the count."""

from __future__ import annotations

from container.process_group.shared_state import Member, SharedState
from handler.errors import TooManyRequests
from handler.startup.admission import Admission


class SharedAdmission(Admission):
    """As `Admission`; `count` is this process's own, for its drain, and `total` that of all."""

    def __init__(self, board: SharedState, seat: int) -> None:
        self._board, self._seat = board, seat
        super().__init__(board.places)

    @property
    def limit(self) -> int:
        return self._board.places

    @limit.setter
    def limit(self, places: int) -> None:
        if self._seat == 0:
            self._board.places = places

    @property
    def total(self) -> int:
        return self._board.in_flight()

    @property
    def retry_after(self) -> int:
        """As often as a place is left here, one is left in each of the others."""
        return max(1, super().retry_after // max(1, len(self._board.members(Member.SERVING))))

    def enter(self) -> None:
        with self._changed:
            if not self._board.enter(self._seat):
                raise TooManyRequests(self.limit, self.retry_after)
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._board.leave(self._seat)
            super().leave()
