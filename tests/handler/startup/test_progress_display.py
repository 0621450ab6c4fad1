"""Progress where people look: /ping's body, a terminal, a log."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys

import pytest

from handler.startup.lifecycle import Lifecycle
from handler.startup.progress_display import of_bytes, shown
from handler.storage.transfer.transfer_progress import TransferProgress

PROGRAM = """
from handler.startup.lifecycle import Lifecycle
from handler.startup.progress_display import shown
from handler.storage.transfer.transfer_progress import TransferProgress
with shown(Lifecycle(), "restore artifacts") as tell:
    tell(TransferProgress(1_000_000_000, 2_000_000_000, 5e8))
    tell(TransferProgress(2_000_000_000, 2_000_000_000, 5e8))
"""


def test_rate_and_waiting_reach_the_status_and_leave_it() -> None:
    life = Lifecycle()
    life.stage("restore artifacts")
    with shown(life, "restore artifacts") as tell:
        tell(TransferProgress(5, 10, 2.5))
        assert (life.status.done, life.status.total, life.status.rate, life.status.waiting) == (5, 10, 2.5, "")
        tell(TransferProgress(0, 10, waiting=True))
        assert "another process" in life.status.waiting
    assert (life.status.total, life.status.waiting) == (0, "")


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    with caplog.at_level(logging.INFO), shown(Lifecycle(), "fetch model", lambda: now[0]) as tell:
        for second in range(25):
            now[0] = 100.0 + second
            tell(TransferProgress(second * 10**9, 30 * 10**9, 1e9))
    assert caplog.messages == [
        "fetch model: 10.00 of 30.00 GB, 1000 MB/s",
        "fetch model: 20.00 of 30.00 GB, 1000 MB/s",
        "fetch model: 24.00 GB in 24.0 s, 1000 MB/s",
    ]


def test_nothing_is_said_of_what_was_there_already(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), shown(Lifecycle(), "restore") as tell:
        tell(TransferProgress(7, 7))
    assert caplog.messages == []


def test_a_terminal_gets_a_bar() -> None:
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=child, env=environment)
    os.close(child)
    seen = b""
    try:
        while chunk := os.read(parent, 4096):
            seen += chunk
    except OSError:  # the terminal's other end is closed
        pass
    assert process.wait(30) == 0
    os.close(parent)
    assert "restore artifacts" in seen.decode()
    assert "━" in seen.decode()
    assert "2.0/2.0 GB" in seen.decode()


def test_bytes_get_a_rate() -> None:
    told: list[TransferProgress] = []
    listen = of_bytes(told.append)
    listen(0, 100)
    listen(50, 100)
    assert [(one.done, one.total) for one in told] == [(0, 100), (50, 100)]
    assert told[1].rate > 0
