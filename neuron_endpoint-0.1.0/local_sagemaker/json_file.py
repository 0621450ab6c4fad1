"""Replaces a JSON file atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path


def replace_json(path: Path, document: object) -> None:
    """Replaces a file. It is always complete, also after a power failure, and only its owner can read it."""
    unfinished = path.with_suffix(".unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
