"""Collects what the native plugin compiles and traces as an artifact, and restores it.

Both are below VLLM_CACHE_ROOT: a directory for each compiled graph (`neff_store`), and from version 0.29 on the
Precompile Cache of traces, with which a warm start does not trace the model again (AWS Neuron documentation, "How to
use the Precompile Cache"). Its files have no documented names, so an entry has everything below the root but logs,
locks and vLLM's records of model classes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.compile_caches.neff_store import NATIVE
from handler.storage.storage_errors import NotFound

# The directory of an entry that has the traces. The directories beside it have one compiled graph each.
TRACES = "traces"
EXCLUDED = ("*.lock", "*.tmp", "*.log", "__pycache__", "locks", "modelinfos")


@dataclass(frozen=True, slots=True)
class NativeCache:
    """The caches of one endpoint.

    :param root: the value of VLLM_CACHE_ROOT. It contains only these caches, at the same path everywhere.
    """

    root: Path

    @property
    def graphs(self) -> Path:
        return NATIVE.directory(self.root, "")

    def environment(self) -> dict[str, str]:
        """Returns the variable to set before vLLM is imported, in the engine's process as well."""
        return {"VLLM_CACHE_ROOT": str(self.root)}

    def clear(self) -> None:
        """Deletes the caches. Called before a compile, so that only its own results are collected afterwards."""
        shutil.rmtree(self.root, ignore_errors=True)

    def collect(self, directory: Path) -> None:
        """Copies the finished graphs and the traces to an entry's directory.

        :raises NotFound: nothing was compiled.
        """
        finished = [marker.parent for marker in self.graphs.glob(f"*/{NATIVE.done}") if marker.is_file()]
        if not finished:
            raise NotFound(f"A compiled graph below {self.graphs}")
        for module in finished:
            shutil.copytree(module, directory / module.name)
        names, parent = shutil.ignore_patterns(*EXCLUDED), str(self.graphs.parent)

        def ignored(folder: str, content: list[str]) -> set[str]:
            return {*names(folder, content), *([self.graphs.name] if folder == parent else [])}

        shutil.copytree(self.root, directory / TRACES, ignore=ignored)

    def bring(self, directory: Path) -> None:
        """Replaces the caches by a restored entry. The entry is copied, because the engine writes to the caches."""
        self.clear()
        for module in directory.iterdir():
            if module.is_dir():
                target = self.root if module.name == TRACES else self.graphs / module.name
                shutil.copytree(module, target, dirs_exist_ok=True)
