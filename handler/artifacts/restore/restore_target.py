"""The directory that a restore creates: its files, in parts, and what lies beside it while it is written.

    <target>                     the finished directory: appears by one rename, contains only the entry's files
    <target>.partial-<identity>  the directory while it is written; an interrupted restore leaves it for the next
    <target>.restored            the identity of the finished directory, and the boot in which it was written
    <target>.lock                see `handler.storage.transfer.download_directory`

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from handler.artifacts.restore.model_paths import CONFIG
from handler.artifacts.store.manifest import FileEntry, Manifest
from handler.json_value import Json, json_object
from handler.storage.safe_paths import confined_all
from handler.storage.transfer.download_directory import TargetRefused, boot_id
from handler.storage.transfer.transfer import FilePart

READ_ONLY = Path("/opt/ml/model")  # read-only on SageMaker, so nothing is ever written there
SETTING = "ENDPOINT_SCRATCH"


@dataclass(frozen=True, slots=True)
class RestoreContents:
    """The files of a restored directory, from one entry or from several (a graph and its weights).

    :param identity: digest over the path, size and digest of every file. It is equal if the directories are equal.
    """

    files: tuple[FileEntry, ...]
    size: int
    identity: str

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> RestoreContents:
        """Collects the files of the manifests. Checks the paths again, because they decide where files are written.

        :raises UnsafePath: a path leaves the directory, or two files clash.
        :raises InvalidManifest: a file does not have a digest for each of its parts.
        """
        files = tuple(file for manifest in manifests for file in manifest.files)
        confined_all([file.path for file in files])
        for file in files:
            file.require_parts("of this restore")
        identity = blake3()
        for file in sorted(files, key=lambda file: file.path):
            identity.update(f"{file.path}\0{file.size}\0{file.digest}\0".encode())
        return cls(files, sum(file.size for file in files), identity.hexdigest())

    def parts(self) -> Iterator[FilePart]:
        """Yields every part of every file that is not empty, in the order in which the engine needs them."""
        for file in self.files:
            for offset, length, digest in file.ranges():
                yield FilePart(file, offset, length, digest)


class RestoreTarget:
    """The paths of one restore.

    :raises TargetRefused: `target` is below `/opt/ml/model`.
    """

    def __init__(self, target: Path, contents: RestoreContents) -> None:
        self.path = target.parent.resolve() / target.name
        _require_outside(READ_ONLY, self.path, target, SETTING)
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
            raise TargetRefused(SETTING, self.path, "exists and was not made by a restore")
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
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps({"identity": self._contents.identity, "boot": boot_id()}))
            file.flush()
            os.fsync(file.fileno())  # an empty stamp would disown the directory after a crash of the machine
        temporary.replace(self._stamp)
        self.partial.rename(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _tidy(self) -> None:
        sizes = {self.partial / file.path: file.size for file in self._contents.files}
        directories = {parent for path in sizes for parent in path.parents}
        for parent, names, files in os.walk(self.partial):
            for path in [Path(parent, name) for name in names]:
                if path.is_symlink():
                    path.unlink()
                elif path not in directories:
                    shutil.rmtree(path)
                    names.remove(path.name)
            for path in [Path(parent, name) for name in files]:
                size = sizes.get(path)
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

    def _read_stamp(self) -> dict[str, Json] | None:
        try:
            return json_object(self._stamp.read_bytes())
        except OSError:
            return None

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
