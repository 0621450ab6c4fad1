"""Tells one boot of the machine from another."""

from __future__ import annotations

import os
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Returns an id that changes with each boot of the machine. Without one, no directory counts as of this boot."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown, process {os.getpid()}"
