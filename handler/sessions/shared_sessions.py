"""The open sessions of several processes, in one SQLite file, so that each process knows all of them."""

from __future__ import annotations

import math
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from handler.sessions.session_errors import SessionNotFound, TooManySessions
from handler.sessions.session_store import Session, Sessions

# How long one process waits for another's transaction; each takes a fraction of a millisecond.
BUSY_SECONDS = 10.0
TABLE = "CREATE TABLE IF NOT EXISTS sessions (identity TEXT PRIMARY KEY, expires REAL NOT NULL)"
INDEX = "CREATE INDEX IF NOT EXISTS by_expiry ON sessions (expires)"


class SharedSessions(Sessions):
    """As `Sessions`, with the same limit for all processes together. Thread-safe.

    :param file: a file in memory (/dev/shm). The first process creates it.
    """

    def __init__(self, file: Path, limit: int, lifetime: float, clock: Callable[[], float]) -> None:
        super().__init__(limit, lifetime, clock)
        self._base = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._base.execute(
            "PRAGMA synchronous = OFF"
        )  # the file is in memory, so it need not survive a crash of the machine
        with self._transaction() as base:
            base.execute(TABLE)
            base.execute(INDEX)

    def __len__(self) -> int:
        with self._transaction() as base:
            return self._count(base)

    def begin(self) -> Session:
        with self._transaction() as base:
            if self._count(base) >= self._limit:
                (first,) = base.execute("SELECT min(expires) FROM sessions").fetchone()
                raise TooManySessions(self._limit, max(1, math.ceil(first - self._clock())))
            session = Session(str(uuid.uuid4()), math.floor(self._clock() + self._lifetime))
            base.execute("INSERT INTO sessions VALUES (?, ?)", (session.identity, session.expires))
            return session

    def check(self, identity: str) -> Session:
        with self._lock:
            row = self._base.execute("SELECT expires FROM sessions WHERE identity = ?", (identity,)).fetchone()
        if row is None:
            raise SessionNotFound("is not open here")
        if row[0] <= self._clock():
            raise SessionNotFound("has expired")
        return Session(identity, row[0])

    def close(self, identity: str) -> None:
        self.check(identity)
        with self._transaction() as base:
            if not base.execute("DELETE FROM sessions WHERE identity = ?", (identity,)).rowcount:
                raise SessionNotFound("is not open here")

    def _count(self, base: sqlite3.Connection) -> int:
        base.execute("DELETE FROM sessions WHERE expires <= ?", (self._clock(),))
        return int(base.execute("SELECT count(*) FROM sessions").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: one process at a time. A process that ends within it changes nothing."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
