"""The open sessions, with a limit on their number. Each expires at a time that is set when it begins.

The state of a session is the key-value cache of its conversation, which the engine finds again by the prompt's prefix.
So only the session ids and their expiry are stored. SageMaker sends all requests of a session to the same instance
("Stateful sessions with Amazon SageMaker AI models").
"""

from __future__ import annotations

import math
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from handler.sessions.session_errors import SessionNotFound, TooManySessions

# How long one process waits for another's transaction; each takes a fraction of a millisecond.
BUSY_SECONDS = 10.0
TABLE = "CREATE TABLE IF NOT EXISTS sessions (identity TEXT PRIMARY KEY, expires REAL NOT NULL)"
INDEX = "CREATE INDEX IF NOT EXISTS by_expiry ON sessions (expires)"


@dataclass(frozen=True, slots=True)
class Session:
    """An open session.

    :param expires: seconds since the epoch.
    """

    identity: str
    expires: float

    def header(self) -> str:
        """The value of X-Amzn-SageMaker-New-Session-Id."""
        return f"{self.identity}; Expires={datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Sessions:
    """The open sessions, in a SQLite database in memory. Thread-safe.

    :param limit: the most open sessions.
    :param lifetime: of a session, in seconds.
    :param clock: returns seconds since the epoch.
    :param file: the database. By default it belongs to this object.
    """

    def __init__(
        self, limit: int, lifetime: float, clock: Callable[[], float], file: Path | Literal[":memory:"] = ":memory:"
    ) -> None:
        self._limit = limit
        self._lifetime = lifetime
        self._clock = clock
        self._lock = threading.Lock()
        self._base = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._base.execute("PRAGMA synchronous = OFF")  # it is in memory, so it cannot survive a crash of the machine
        with self._transaction() as base:
            base.execute(TABLE)
            base.execute(INDEX)

    def __len__(self) -> int:
        with self._transaction() as base:
            return self._count(base)

    def begin(self) -> Session:
        """Opens a session.

        :raises TooManySessions: the limit of open sessions is reached.
        """
        with self._transaction() as base:
            if self._count(base) >= self._limit:
                (first,) = base.execute("SELECT min(expires) FROM sessions").fetchone()
                raise TooManySessions(self._limit, max(1, math.ceil(first - self._clock())))
            session = Session(str(uuid.uuid4()), math.floor(self._clock() + self._lifetime))
            base.execute("INSERT INTO sessions VALUES (?, ?)", (session.identity, session.expires))
            return session

    def check(self, identity: str) -> Session:
        """The open session with this id.

        :raises SessionNotFound: it is not open.
        """
        with self._lock:
            row = self._base.execute("SELECT expires FROM sessions WHERE identity = ?", (identity,)).fetchone()
        if row is None:
            raise SessionNotFound("is not open here")
        if row[0] <= self._clock():
            raise SessionNotFound("has expired")
        return Session(identity, row[0])

    def close(self, identity: str) -> None:
        """Closes a session.

        :raises SessionNotFound: it is not open.
        """
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


class SharedSessions(Sessions):
    """The open sessions of several processes, with one limit for all of them. Each process knows all sessions.

    :param file: a file in memory (/dev/shm). The first process creates it.
    """

    def __init__(self, file: Path, limit: int, lifetime: float, clock: Callable[[], float]) -> None:
        super().__init__(limit, lifetime, clock, file)
