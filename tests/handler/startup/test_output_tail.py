"""What a compile prints is kept, and passed on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from handler.startup.start_diagnosis import MOST_BYTES, output_tail


def test_what_a_child_prints_is_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        subprocess.run([sys.executable, "-c", "import os; os.write(1, b'out'); os.write(2, b'err')"], check=True)
        os.write(2, b"own")
    assert {"out", "err", "own"} == {word for word in ("out", "err", "own") if word in output.text()}
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("out", "errown")
    os.write(1, b"later")
    assert capfd.readouterr().out == "later"
    assert "later" not in output.text()


def test_a_child_that_lives_on_goes_on_to_be_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); print('alive')"], stdin=subprocess.PIPE, stdout=None, text=True
        )
    child.communicate("go\n", timeout=30)
    assert output.text() == "alive\n"
    assert capfd.readouterr().out == "alive\n"


def test_only_the_end_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        os.write(1, b"first")
        for _ in range(20):
            os.write(1, b"x" * 65536)
        os.write(1, b"last")
    assert len(output.text()) <= MOST_BYTES + 65536
    assert output.text().endswith("last")
    assert "first" not in output.text()
    capfd.readouterr()
