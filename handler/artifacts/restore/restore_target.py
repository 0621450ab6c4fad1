"""The directory that a restore makes, and what stands beside it while and after it is made.

    <target>                     the finished directory: appears by one rename, holds the entry's files and nothing else
    <target>.partial-<identity>  what is being written; kept when a restore breaks off, and gone on with by the next
    <target>.restored            what the finished directory is, and in which boot of the machine it was written
    <target>.lock                see `restore_lock`

Nothing is synced to the disk: at a fleet's first start that would double the time, and a process that is killed loses
nothing that it has written. What a machine that goes down may lose is found out instead: a directory of another boot
goes back to being partial, so that every digest is checked again and only what is wrong is fetched.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path

from handler.artifacts.restore.model_paths import CONFIG
from handler.artifacts.restore.restore_errors import TargetRefused
from handler.artifacts.restore.restore_parts import RestoreContents

READ_ONLY = Path("/opt/ml/model")  # on SageMaker, and never ours to change elsewhere
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class RestoreTarget:
    """The paths of one restore. `target` must not be below `forbidden`.

    :raises TargetRefused: it is.
    """

    def __init__(self, target: Path, contents: RestoreContents, setting: str, forbidden: Path = READ_ONLY) -> None:
        self.path = target.parent.resolve() / target.name
        self.setting = setting
        if self.path.resolve().is_relative_to(forbidden.resolve()) or self.path.is_relative_to(forbidden):
            raise TargetRefused(setting, target, f"is below {forbidden}, which is read-only on SageMaker")
        self._contents = contents
        self.partial = self._beside(f"partial-{contents.identity[:16]}")
        self.lock = self._beside("lock")
        self.scratch = self._beside("config")
        self._stamp = self._beside("restored")

    def finished(self) -> bool:
        """Whether the directory is there and is this entry's; one that may have suffered is made partial again.

        :raises TargetRefused: something is there that no restore has made.
        """
        if not os.path.lexists(self.path) or (self.path.is_dir() and not any(self.path.iterdir())):
            return False
        stamp = self._read_stamp()
        if stamp is None or self.path.is_symlink():
            raise TargetRefused(self.setting, self.path, "exists and was not made by a restore")
        if stamp.get("identity") != self._contents.identity:
            return False
        if stamp.get("boot") == _boot() and self._looks_whole():
            return True
        shutil.rmtree(self.partial, ignore_errors=True)
        self.path.rename(self.partial)
        return False

    def prepare(self) -> bool:
        """Makes the partial directory, with every directory in it; True when an earlier restore has left something.

        Whatever does not belong to the entry is removed: older partial directories, and in this one links and files
        that the entry does not name.
        """
        for other in self.path.parent.glob(f"{glob.escape(self.path.name)}.partial-*"):
            if other != self.partial:
                shutil.rmtree(other)
        self.scratch.unlink(missing_ok=True)
        left = self.partial.is_dir()
        if left:
            self._tidy()
        directories = {(self.partial / file.path).parent for file in self._contents.files}
        for directory in {self.partial, *directories}:
            directory.mkdir(parents=True, exist_ok=True)
        return left

    def appear(self) -> None:
        """The rename. A directory of another entry that stands there goes out of the way first."""
        old = self._beside("partial-old")
        if self.path.is_dir() and any(self.path.iterdir()):
            self.path.rename(old)
        temporary = self._beside("restored-new")
        temporary.write_text(json.dumps({"identity": self._contents.identity, "boot": _boot()}))
        temporary.replace(self._stamp)
        self.partial.rename(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _tidy(self) -> None:
        wanted = {self.partial / file.path: file.size for file in self._contents.files}
        directories = {parent for path in wanted for parent in path.parents}
        for parent, names, files in os.walk(self.partial):
            for path in [Path(parent, name) for name in names]:
                if path.is_symlink():
                    path.unlink()
                elif path not in directories:
                    shutil.rmtree(path)
                    names.remove(path.name)
            for path in [Path(parent, name) for name in files]:
                size = wanted.get(path)
                if size is None or path.is_symlink() or not path.is_file():
                    path.unlink()
                elif path.stat().st_size > size:
                    os.truncate(path, size)

    def _looks_whole(self) -> bool:
        """Sizes only: what happens to a file after the rename is not ours. Rewritten configurations have another."""
        for file in self._contents.files:
            path = self.path / file.path
            if not path.is_file() or (path.stat().st_size != file.size and path.name != CONFIG):
                return False
        return True

    def _read_stamp(self) -> dict[str, object] | None:
        try:
            stamp = json.loads(self._stamp.read_bytes())
        except (OSError, ValueError):
            return None
        return stamp if isinstance(stamp, dict) else None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")


def _boot() -> str:
    """A new one each time the machine starts; where there is none, nothing is ever trusted to be of this boot."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown, process {os.getpid()}"
