"""Lets pip in a build read its packages where pip on this machine does. Nothing of it gets into the image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def volumes() -> list[str]:
    """The options that mount pip's configuration files, and every file and directory that they name, read-only."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "debug"], capture_output=True, text=True, check=False)
    files = [Path(path) for path in re.findall(r"^\s+(/\S+), exists: True$", done.stdout, re.MULTILINE)]
    named = {Path(path) for file in files for path in re.findall(r"(?:=\s*|file://|\s)(/[^\s,]+)", file.read_text())}
    # A certificate is a link into its directory. An index (PEP 503: .../simple) may have its files beside it.
    mounted = {path.parent if path.is_file() or path.name == "simple" else path for path in named if path.exists()}
    targets = {str(path): "/etc/pip.conf" if len(files) == 1 else str(path) for path in files}
    targets |= {str(path): str(path) for path in mounted}
    return [f"--volume={source}:{target}:ro" for source, target in sorted(targets.items())]
