"""The processes of containers on this machine: their ports, signals and capabilities, and those that were left."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0


def signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def started_at(pid: int) -> str:
    """Returns the start time of a process, which distinguishes it from a later process with the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def read_only_model_command() -> tuple[str, ...]:
    """Returns the prefix of a command that makes the model's directory read-only for it.

    Root can write to read-only files, but a container's root cannot write to /opt/ml/model. The prefix is empty if this
    process is not root, or cannot drop a capability.
    """
    command = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    if os.geteuid() != 0 or shutil.which(command[0]) is None:
        return ()
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if tried.returncode == 0 else ()


def run_quietly(command: Sequence[str]) -> None:
    """Runs a command. Its failure means that there was nothing to do."""
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("%s failed: %s", shlex.join(command), error)


def end_orphans(pids: Path) -> None:
    """Ends the processes that a killed service left running."""
    for file in pids.iterdir():
        try:
            pid, at, remove = [*file.read_text().split("\n"), "", ""][:3]
        except FileNotFoundError:
            continue  # It has ended.
        if pid.isdigit() and at and started_at(int(pid)) == at:
            signal_group(int(pid), signal.SIGKILL)
        if remove:
            run_quietly(shlex.split(remove))
        file.unlink(missing_ok=True)
