"""Copies the Neuron compiler's cache of single graphs (NEFF files) from the store before a compile, and back after it.

The cache is saved after a failed compile as well: the graphs that it finished need not be compiled again.

`NEURON_COMPILE_CACHE_URL` names a local directory, with `neuronxcc-<version>/MODULE_<graph>+<flags>/` for each graph
(AWS Neuron SDK documentation, "Neuron Persistent Cache"). A failed compile leaves `model.log` without `model.neff`
there, and the compiler never tries that graph again. An interrupted compile leaves locks and no `model.done`. Neither
is saved, and both are removed before a compile.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from handler.artifacts.compile_caches.neff_store import NEURONX_CC, CacheLayout, NeffStore, StoredModule
from handler.artifacts.lease.lease import RealClock
from handler.errors import EndpointError
from handler.storage.transfer.download_directory import free

T = TypeVar("T")
logger = logging.getLogger(__name__)

# The absolute path of the work directory is one of the compiler's arguments (for its log), and the cache's key includes
# the arguments. With another directory, entries of other machines are never found. NxD Inference takes the directory
# from BASE_COMPILE_WORK_DIR (src/neuronx_distributed_inference/models/application_base.py). This is its default.
WORK_DIRECTORY = "/tmp/nxd_model/"  # noqa: S108
AT_ONCE = 8
GIB = 1024**3
# The store has the modules of every model that was compiled with a compiler version. The newest are downloaded, up to
# these numbers of modules and bytes.
MOST_MODULES = 1000
MOST_BYTES = 20 * GIB
# Seconds of a running compile between two saves.
SAVE_EVERY = 300.0


class ModuleState(Enum):
    """The state of a module's directory. A failed compile leaves a poisoned one, an interrupted one a half-made one."""

    FINISHED = "finished"
    POISONED = "poisoned"
    HALF_MADE = "half_made"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class NeffTransfer:
    """The number of modules downloaded or saved. `refused` has the problems of the others; the compile continues."""

    modules: int = 0
    refused: tuple[str, ...] = ()


def environment(root: Path) -> dict[str, str]:
    """Returns the variables with which a compile uses this cache and finds the same entries on every machine."""
    return {"NEURON_COMPILE_CACHE_URL": str(root), "BASE_COMPILE_WORK_DIR": WORK_DIRECTORY}


class NeffCache:
    """The compiler's cache in one directory, and its copy in a store.

    :param root: the value of NEURON_COMPILE_CACHE_URL, or the native plugin's VLLM_CACHE_ROOT.
    :param compiler: the compiler version whose modules are downloaded. Modules of any version are saved if their folder
        names the version, as neuronx-cc's does.
    """

    def __init__(self, root: Path, store: NeffStore, compiler: str | None = None) -> None:
        self.root, self._store, self._compiler = root, store, compiler
        self._layout = store.layout
        # Names of modules that the store has and that could not be downloaded.
        self._refused: set[str] = set()
        self._saved: set[Path] = set()

    def clean(self) -> Counter[ModuleState]:
        """Removes modules that would make the next compile fail. Call it only when no compile is running here.

        :returns: the number of modules that were in each state.
        """
        counts = Counter[ModuleState]()
        for module in self._modules():
            state = state_of(module, self._layout)
            counts[state] += 1
            if state in {ModuleState.POISONED, ModuleState.HALF_MADE}:
                shutil.rmtree(module)
            elif state is ModuleState.FINISHED:
                for lock in module.glob("*.lock"):
                    lock.unlink()
        poisoned, half_made = counts[ModuleState.POISONED], counts[ModuleState.HALF_MADE]
        if poisoned or half_made:
            what = "removed from %s: %d graphs of failed compiles, %d of interrupted ones"
            logger.warning(what, self.root, poisoned, half_made)
        return counts

    def bring(
        self, compiler: str | None = None, most_bytes: int = MOST_BYTES, most_modules: int = MOST_MODULES
    ) -> NeffTransfer:
        """Downloads the modules that this compiler version made on other machines, the newest first.

        :param most_modules: how many modules are read at most, to see their sizes.
        :param most_bytes: limit for all modules together. Never more than half of the free disk space: the compile
            needs some.
        :raises ArtifactError: the store cannot be listed. A single damaged module is skipped.
        """
        compiler = compiler or self._compiler
        if compiler is None:
            return NeffTransfer()  # the compiler is not installed, so nothing is compiled
        directory = self._layout.directory(self.root, compiler)
        directory.mkdir(parents=True, exist_ok=True)
        most_bytes = min(most_bytes, free(directory) // 2)
        present = {module.name for module in self._modules() if module.parent == directory}
        problems: list[str] = []
        chosen: list[StoredModule] = []
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="neff") as pool:
            names = [name for name in self._store.names(compiler) if name not in present]
            newest = names[:most_modules]
            modules = pool.map(lambda name: _try(partial(self._store.read, compiler, name)), newest)
            for name, module in zip(newest, modules, strict=True):
                if isinstance(module, StoredModule) and module.size <= most_bytes:
                    most_bytes -= module.size
                    chosen.append(module)
                elif isinstance(module, str):
                    problems.append(module)
                    self._refused.add(name)
            brought = list(pool.map(lambda module: _try(partial(self._store.bring, module, directory)), chosen))
        problems += [problem for problem in brought if isinstance(problem, str)]
        self._refused |= {module.module for module, problem in zip(chosen, brought, strict=True) if problem is not None}
        return NeffTransfer(brought.count(None), tuple(problems))

    def save(self) -> NeffTransfer:
        """Uploads every finished module that the store does not have, or of which it has a damaged or rejected copy.

        A failure of the store is only reported.
        """
        finished = [module for module in self.finished() if module not in self._saved]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="neff") as pool:
            saved = list(pool.map(self._save, finished))
        self._saved |= {module for module, problem in zip(finished, saved, strict=True) if not isinstance(problem, str)}
        return NeffTransfer(saved.count(True), tuple(problem for problem in saved if isinstance(problem, str)))

    def _save(self, module: Path) -> bool | str:
        version = self._layout.version(module, self._compiler)
        if version is None:
            return False
        return _try(partial(self._store.save, version, module, replace=module.name in self._refused))

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Compile within it: restores the cache before, and saves it afterwards, even if the compile failed.

        So a compile reuses the graphs that any instance has finished. They are saved while it goes on, too: a container
        that is killed cannot do so any more. A cache that cannot be restored or saved costs time, but never ends a
        start.
        """
        try:
            self.clean()
            _log("restored", self.bring())
        except (EndpointError, OSError, ValueError) as error:
            logger.warning("no compiled graphs could be restored: %s", error)
        cancel = RealClock().every(SAVE_EVERY, self._save_now)
        try:
            yield
        finally:
            cancel()
            self._save_now()

    def _save_now(self) -> None:
        try:
            _log("saved", self.save())
        except (EndpointError, OSError, ValueError) as error:
            logger.warning("no compiled graphs could be saved: %s", error)

    def finished(self) -> list[Path]:
        """Returns the directories of finished modules."""
        return [module for module in self._modules() if state_of(module, self._layout) is ModuleState.FINISHED]

    def _modules(self) -> Iterator[Path]:
        for module in sorted(self.root.glob(f"{self._layout.folder}/*")):
            if module.is_dir() and not module.is_symlink() and self._layout.module.fullmatch(module.name):
                yield module


def state_of(module: Path, layout: CacheLayout = NEURONX_CC) -> ModuleState:
    """Returns the state of a module's directory. It is busy while a process holds its lock (flock, like `filelock`)."""
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


def _log(what: str, moved: NeffTransfer) -> None:
    logger.info("compiled graphs %s: %d", what, moved.modules)
    for reason in moved.refused[:5]:
        logger.warning("a compiled graph was not %s: %s", what, reason)


def _try(call: Callable[[], T]) -> T | str:
    """Returns the result of a call, or its error message: a failing cache must not end a start."""
    try:
        return call()
    except EndpointError as error:  # of the store, or of the key that signs
        return error.message
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
