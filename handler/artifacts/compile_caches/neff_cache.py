"""The second tier: the Neuron compiler's own cache of single graphs, brought from the store before a compile and saved
after it, also after one that failed: the graphs that it finished need not be compiled again.

`NEURON_COMPILE_CACHE_URL` is a directory here, `neuronxcc-<version>/MODULE_<graph>+<flags>/` for each graph (AWS Neuron
SDK documentation, "Neuron Persistent Cache"). A failed compile leaves `model.log` without `model.neff` there and is
never tried again; an interrupted one leaves locks and no `model.done`. Neither is saved, and both are cleaned out.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from handler.artifacts.compile_caches.neff_layout import NEURONX_CC, CacheLayout
from handler.artifacts.compile_caches.neff_store import NeffStore, StoredModule
from handler.artifacts.restore import disk_space
from handler.storage.storage_errors import ArtifactError

T = TypeVar("T")

# The compiler is told to write its log into the work directory by its absolute path, and the cache's key takes that
# argument in: under another directory no entry of another machine is ever found. NxD Inference takes the directory from
# BASE_COMPILE_WORK_DIR (src/neuronx_distributed_inference/models/application_base.py); this is its default, set anyway.
WORK_DIRECTORY = "/tmp/nxd_model/"  # noqa: S108
AT_ONCE = 8
GIB = 1024**3
# A compiler version's modules of every model that was ever compiled: the newest are brought, up to this many bytes.
MOST_BYTES = 20 * GIB


class ModuleState(Enum):
    """What a module's directory holds."""

    FINISHED = "finished"
    POISONED = "poisoned"
    HALF_MADE = "half-made"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How many modules were found in which state; poisoned and half-made ones are gone."""

    finished: int = 0
    poisoned: int = 0
    half_made: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """Modules brought or saved. `refused`: those that could not be, for whatever reason; the compile goes on."""

    modules: int = 0
    refused: tuple[str, ...] = ()


def environment(root: Path) -> dict[str, str]:
    """The variables under which a compile uses this cache, and finds the same entries on every machine."""
    return {"NEURON_COMPILE_CACHE_URL": str(root), "BASE_COMPILE_WORK_DIR": WORK_DIRECTORY}


class NeffCache:
    """The cache in one directory, and its copy in a store.

    :param root: the value of NEURON_COMPILE_CACHE_URL, or the native plugin's VLLM_CACHE_ROOT.
    :param compiler: whose modules are brought; saved are all that name their own, as those of neuronx-cc do.
    """

    def __init__(self, root: Path, store: NeffStore, compiler: str | None = None) -> None:
        self._root, self._store, self._compiler = root, store, compiler
        self._layout = store.layout

    @property
    def root(self) -> Path:
        return self._root

    def clean(self) -> Cleaned:
        """Removes what would end or mislead the next compile. Call it when none is running here."""
        counts = dict.fromkeys(ModuleState, 0)
        for module in self._modules():
            state = state_of(module, self._layout)
            counts[state] += 1
            if state in {ModuleState.POISONED, ModuleState.HALF_MADE}:
                shutil.rmtree(module)
            elif state is ModuleState.FINISHED:
                for lock in module.glob("*.lock"):
                    lock.unlink()
        return Cleaned(
            counts[ModuleState.FINISHED],
            counts[ModuleState.POISONED],
            counts[ModuleState.HALF_MADE],
            counts[ModuleState.BUSY],
        )

    def bring(self, compiler: str | None = None, most_bytes: int = MOST_BYTES) -> Moved:
        """Before a compile: the modules that this version of the compiler has made elsewhere, the newest first.

        :param most_bytes: of all modules that are brought; half of the free disk at most, for the compile needs some.
        :raises ArtifactError: the store cannot be listed. A single module that is wrong is only passed over.
        """
        compiler = compiler or self._compiler
        if compiler is None:
            return Moved()  # not installed here, and then nothing is compiled either
        directory = self._layout.directory(self._root, compiler)
        directory.mkdir(parents=True, exist_ok=True)
        most_bytes = min(most_bytes, disk_space.free(directory) // 2)
        there = {module.name for module in self._modules() if module.parent == directory}
        problems: list[str] = []
        wanted: list[StoredModule] = []
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="neff") as pool:
            names = [name for name in self._store.names(compiler) if name not in there]
            for found in pool.map(lambda name: _try(partial(self._store.read, compiler, name)), names):
                if isinstance(found, StoredModule) and found.size <= most_bytes:
                    most_bytes -= found.size
                    wanted.append(found)
                elif isinstance(found, str):
                    problems.append(found)
            brought = list(pool.map(lambda module: _try(partial(self._store.bring, module, directory)), wanted))
        problems += [found for found in brought if isinstance(found, str)]
        return Moved(brought.count(None), tuple(problems))

    def save(self) -> Moved:
        """After a compile: every finished module that the store does not have. A store that fails ends nothing."""
        finished = self.finished()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="neff") as pool:
            saved = list(pool.map(self._save, finished))
        return Moved(saved.count(True), tuple(found for found in saved if isinstance(found, str)))

    def _save(self, module: Path) -> bool | str:
        version = self._layout.version(module, self._compiler)
        return False if version is None else _try(partial(self._store.save, version, module))

    def finished(self) -> list[Path]:
        """The directories of finished modules."""
        return [module for module in self._modules() if state_of(module, self._layout) is ModuleState.FINISHED]

    def _modules(self) -> Iterator[Path]:
        for module in sorted(self._root.glob(f"{self._layout.folder}/*")):
            if module.is_dir() and not module.is_symlink() and self._layout.module.fullmatch(module.name):
                yield module


def state_of(module: Path, layout: CacheLayout = NEURONX_CC) -> ModuleState:
    """What a module's directory holds. Busy is one whose lock a living process holds (flock, as `filelock` does it)."""
    if any(_is_locked(lock) for lock in module.glob("*.lock")):
        return ModuleState.BUSY
    neffs = [neff for neff in module.glob(layout.neff) if neff.is_file()]
    if neffs and all(neff.stat().st_size for neff in neffs) and (module / layout.done).is_file():
        return ModuleState.FINISHED
    failed = layout.log is not None and (module / layout.log).is_file() and not neffs
    return ModuleState.POISONED if failed else ModuleState.HALF_MADE


def _is_locked(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _try(call: Callable[[], T]) -> T | str:
    """What a call returns, or what went wrong: a cache must not end a start."""
    try:
        return call()
    except ArtifactError as error:
        return error.message
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
