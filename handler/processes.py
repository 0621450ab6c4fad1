"""Processes of this machine: which are alive, a port for a new one, and this one's environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs. One that has ended counts as dead, also while nobody has asked for its status yet: in a
    container whose first process reaps no orphans that lasts."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def free_port() -> int:
    """Returns a TCP port of loopback that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def current_environment() -> dict[str, str]:
    """A copy of the environment, also while another thread changes it: `dict(os.environ)` may raise a KeyError then.

    Imports change it. NumPy sets OPENBLAS_MAIN_FREE and deletes it (numpy/__init__.py), while the start goes on.
    """
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}
