"""Processes of this machine: which are alive, and a port for a new one."""

from __future__ import annotations

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
