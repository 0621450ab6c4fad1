"""Test code: prints reports as neuron-monitor does. Nothing here reads a device.

FAKE_MONITOR_REPORTS is the file; with FAKE_MONITOR_THEN=end it ends after them, else it stands still.
Each start adds a byte to FAKE_MONITOR_STARTED.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def install(directory: Path) -> Path:
    """An executable `neuron-monitor` in a directory that is to be put on the PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "neuron-monitor"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}"\n')
    program.chmod(0o755)
    return program


def main() -> None:
    with Path(os.environ["FAKE_MONITOR_STARTED"]).open("ab") as started:
        started.write(b".")
    sys.stdout.buffer.write(Path(os.environ["FAKE_MONITOR_REPORTS"]).read_bytes())
    sys.stdout.flush()
    if os.environ.get("FAKE_MONITOR_THEN") != "end":
        signal.pause()


if __name__ == "__main__":
    main()
