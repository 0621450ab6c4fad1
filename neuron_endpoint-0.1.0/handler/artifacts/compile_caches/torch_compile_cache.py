"""Collects torch.compile's caches on a CPU as an artifact, and restores them.

What vLLM 0.16.0 does on a CPU, as observed with the sample model:

- It compiles with Dynamo and Inductor directly (`DYNAMO_TRACE_ONCE`, vllm/platforms/cpu.py). Everything is below
  TORCHINDUCTOR_CACHE_DIR: generated C++ and shared objects, `fxgraph` and `aotautograd`. VLLM_CACHE_ROOT gets only
  `modelinfos`, which are not results of a compile. vLLM's own caches there (`torch_compile_cache`, `torch_aot_compile`)
  are for other platforms; they are included if they exist.
- The sampler is compiled by the first request that samples. So the caches are collected after a warm-up that samples.
- The directory can be moved. Written under one path and read under another, the same start took 9.7 s instead of 23.9,
  and no file was added. Some files contain the directory's path, but it is not used for lookups.
- No file contains the model's directory. vLLM's configuration hash does (two copies of a model in two directories have
  two hashes), but only vLLM's own caches are keyed by it. It also includes HOME and XDG_CACHE_HOME, through
  VLLM_CONFIG_ROOT and VLLM_XLA_CACHE_PATH, but not VLLM_CACHE_ROOT. So for those caches, keep the model, the scratch
  directory and HOME at the same paths everywhere, as they are in one image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from handler.storage.storage_errors import NotFound

# The directories below VLLM_CACHE_ROOT that are collected. The Inductor directory is collected as a whole.
VLLM_DIRECTORIES = ("torch_compile_cache", "torch_aot_compile")
# Locks, and files that a dead process did not finish.
EXCLUDED_DIRECTORIES = frozenset({"locks", "__pycache__"})
EXCLUDED_SUFFIXES = (".lock", ".tmp", ".log")


@dataclass(frozen=True, slots=True)
class TorchCompileCache:
    """The caches of one endpoint, at fixed paths below its scratch directory.

    :param root: contains only these caches.
    """

    root: Path

    @property
    def inductor(self) -> Path:
        return self.root / "inductor"

    @property
    def vllm(self) -> Path:
        return self.root / "vllm"

    def environment(self) -> dict[str, str]:
        """Returns the variables to set before vLLM or torch is imported, in the engine's process as well."""
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.inductor), "VLLM_CACHE_ROOT": str(self.vllm)}

    def clear(self) -> None:
        """Deletes the caches. Called before a compile, so that only its own results are collected afterwards."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.inductor.mkdir(parents=True)
        self.vllm.mkdir()

    def collect(self, directory: Path) -> int:
        """Copies the compiled files to an entry's directory and returns their number. Called after the warm-up.

        :raises NotFound: nothing was compiled: the engine ran eagerly, or with its caches in another directory.
        """
        count = 0
        for source in self._compiled():
            target = directory / source.relative_to(self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            count += 1
        if not count:
            raise NotFound(f"A compiled graph below {self.root}")
        return count

    def bring(self, directory: Path) -> None:
        """Replaces the caches by a restored entry. Called before the engine starts.

        The entry is copied, because the engine writes to the caches.
        """
        self.clear()
        for name in (self.inductor.name, self.vllm.name):
            if (directory / name).is_dir():
                shutil.copytree(directory / name, self.root / name, dirs_exist_ok=True)

    def _compiled(self) -> Iterator[Path]:
        for top in (self.inductor, *(self.vllm / name for name in VLLM_DIRECTORIES)):
            for parent, names, files in os.walk(top):
                names[:] = sorted(set(names) - EXCLUDED_DIRECTORIES)
                for file in sorted(files):
                    path = Path(parent, file)
                    if not file.endswith(EXCLUDED_SUFFIXES) and path.is_file() and not path.is_symlink():
                        yield path
