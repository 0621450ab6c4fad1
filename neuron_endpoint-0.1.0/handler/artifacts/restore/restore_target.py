"""The directory that a restore creates, and the files beside it.

    <target>                     the finished directory: appears by one rename, contains only the entry's files
    <target>.partial-<identity>  the directory while it is written; an interrupted restore leaves it for the next
    <target>.restored            the identity of the finished directory, and the boot in which it was written
    <target>.lock                see `handler.storage.transfer.file_lock`

Nothing is synced to disk. That would double the time of a first start, and a killed process loses nothing that it has
written. Only a crash of the machine may lose data. So a directory of an earlier boot becomes partial again: every
digest is checked, and only wrong parts are downloaded.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from pathlib import Path

from handler.artifacts.restore.model_paths import CONFIG
from handler.artifacts.restore.restore_errors import TargetRefused
from handler.artifacts.restore.restore_parts import RestoreContents
from handler.storage.boot import boot_id

READ_ONLY = Path("/opt/ml/model")  # read-only on SageMaker, so nothing is ever written there
SETTING = "ENDPOINT_SCRATCH"


class RestoreTarget:
    """The paths of one restore.

    :raises TargetRefused: `target` is below `forbidden`.
    """

    def __init__(self, target: Path, contents: RestoreContents, setting: str, forbidden: Path = READ_ONLY) -> None:
        self.path = target.parent.resolve() / target.name
        self.setting = setting
        _require_outside(forbidden, self.path, target, setting)
        self._contents = contents
        self.partial = self._beside(f"partial-{contents.identity[:16]}")
        self.lock = self._beside("lock")
        self.scratch = self._beside("config")
        self._stamp = self._beside("restored")

    def finished(self) -> bool:
        """Whether the directory exists and belongs to this entry. A possibly damaged one is made partial again.

        :raises TargetRefused: the directory was not created by a restore.
        """
        if not os.path.lexists(self.path) or (self.path.is_dir() and not any(self.path.iterdir())):
            return False
        stamp = self._read_stamp()
        if stamp is None or self.path.is_symlink():
            raise TargetRefused(self.setting, self.path, "exists and was not made by a restore")
        if stamp.get("identity") != self._contents.identity:
            return False
        if stamp.get("boot") == boot_id() and self._looks_whole():
            return True
        shutil.rmtree(self.partial, ignore_errors=True)
        self.path.rename(self.partial)
        return False

    def prepare(self) -> bool:
        """Creates the partial directory and its subdirectories. Returns True if an earlier restore left files there.

        Removes everything that does not belong to the entry: older partial directories, links, and other files.
        """
        for other in self.path.parent.glob(f"{glob.escape(self.path.name)}.partial-*"):
            if other != self.partial:
                shutil.rmtree(other)
        self.scratch.unlink(missing_ok=True)
        resume = self.partial.is_dir()
        if resume:
            self._tidy()
        directories = {(self.partial / file.path).parent for file in self._contents.files}
        for directory in {self.partial, *directories}:
            directory.mkdir(parents=True, exist_ok=True)
        return resume

    def appear(self) -> None:
        """Renames the partial directory to the target. A directory of another entry is moved away first."""
        old = self._beside("partial-old")
        if self.path.is_dir() and any(self.path.iterdir()):
            self.path.rename(old)
        temporary = self._beside("restored-new")
        temporary.write_text(json.dumps({"identity": self._contents.identity, "boot": boot_id()}))
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
        """Compares only the sizes of the files. A rewritten configuration has another size."""
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


def require_scratch(directory: Path, setting: str = SETTING, forbidden: Path = READ_ONLY) -> None:
    """Creates the scratch directory if it does not exist. Called before anything is written to it.

    :raises TargetRefused: it is below `/opt/ml/model` (also through a link), or it cannot be written.
    """
    _require_outside(forbidden, directory.absolute(), directory, setting)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise TargetRefused(setting, directory, f"cannot be written ({error.strerror})") from error


def _require_outside(forbidden: Path, path: Path, configured: Path, setting: str) -> None:
    if path.resolve().is_relative_to(forbidden.resolve()) or path.is_relative_to(forbidden):
        raise TargetRefused(setting, configured, f"is below {forbidden}, which is read-only on SageMaker")
