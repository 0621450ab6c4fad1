"""`make size`: prints how many files and lines of Python each package has, and how many its budget allows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Lines of Python. None: no budget of its own.
BUDGETS: Final[dict[str, int | None]] = {
    "container": 6_000,
    "handler": None,
    "handler/engine": 5_500,
    "model_packaging": 7_500,
    "local_sagemaker": 4_500,
    "product": 46_000,
    "benchmarks": 4_500,
    "tests": 45_000,
}
PRODUCT: Final = ("container", "handler", "model_packaging", "local_sagemaker")
SHORT: Final = 60


@dataclass(frozen=True, slots=True)
class Size:
    """:param short: how many files have fewer than SHORT lines."""

    files: int
    short: int
    lines: int


def size(paths: Iterable[Path]) -> Size:
    counts = [len(path.read_text().splitlines()) for path in paths if path.name != "__init__.py"]
    return Size(len(counts), sum(count < SHORT for count in counts), sum(counts))


def main() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout.splitlines()
    print(f"{'':16}{'files':>7}{'short':>7}{'lines':>8}{'budget':>8}")
    for name, budget in BUDGETS.items():
        folders = PRODUCT if name == "product" else (name,)
        measured = size(Path(path) for path in listed if path.startswith(tuple(f"{folder}/" for folder in folders)))
        limit = "" if budget is None else f"{budget:,}"
        print(f"{name:16}{measured.files:7}{measured.short:7}{measured.lines:8,}{limit:>8}")


if __name__ == "__main__":
    main()
