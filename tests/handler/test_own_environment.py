"""This process's environment, read while another thread changes it."""

from __future__ import annotations

import os
import threading

import pytest

from handler.processes import current_environment


def test_the_environment_is_copied_while_a_thread_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an import of NumPy does. With `dict(os.environ)` this ends in a KeyError."""
    for number in range(200):
        monkeypatch.setenv(f"STAYS_{number}", "x")
    monkeypatch.setenv("COMES_AND_GOES", "1")
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            os.environ.pop("COMES_AND_GOES", None)
            os.environ["COMES_AND_GOES"] = "1"

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(3000):
            copied = current_environment()
            assert copied["STAYS_199"] == "x"
    finally:
        over.set()
        thread.join()
