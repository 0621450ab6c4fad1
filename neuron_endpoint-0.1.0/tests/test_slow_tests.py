"""The list of slow tests names tests that exist."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOW = ROOT / "tests/slow_tests.txt"


def test_every_slow_test_exists() -> None:
    names = [line for line in SLOW.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    missing = []
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / file
        if not path.exists() or f"def {function}(" not in path.read_text(encoding="utf-8"):
            missing.append(name)
    assert missing == []
    assert names == sorted(set(names))
