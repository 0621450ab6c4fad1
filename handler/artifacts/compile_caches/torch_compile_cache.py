"""What torch.compile leaves behind on a CPU, as an artifact: directories in, directories out.

What vLLM 0.16.0 does on a CPU, as seen on the sample model:

- It compiles with Dynamo and Inductor directly (`DYNAMO_TRACE_ONCE`, vllm/platforms/cpu.py): everything is below
  TORCHINDUCTOR_CACHE_DIR: generated C++ and shared objects, `fxgraph` and `aotautograd`. VLLM_CACHE_ROOT got only
  `modelinfos`, which are no compile's results. vLLM's own caches there (`torch_compile_cache`, `torch_aot_compile`) are
  for other platforms, and taken along where there are any.
- The sampler is compiled with the first request that samples, so a collection comes after a warm-up that does.
- The directory can be moved: written under one path and read under another, the same start took 9.7 s instead of 23.9,
  and not one file was added. Its own path stands in some of the files and is not looked up.
- No file names the model's directory. vLLM's configuration hash does (two copies of a model in two directories have two
  hashes), but only its own caches are keyed by that; and HOME and XDG_CACHE_HOME, for VLLM_CONFIG_ROOT and
  VLLM_XLA_CACHE_PATH are among what it hashes, while VLLM_CACHE_ROOT is not. So for those caches, keep the model, the
  scratch directory and HOME at the same paths everywhere, as they are in one image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from handler.storage.storage_errors import NotFound

# Below the entry, and what is taken from below each directory: all of it, or the directories named.
VLLM = ("torch_compile_cache", "torch_aot_compile")
# Locks of living processes, and what a process that died was writing.
LEFT_OUT_DIRECTORIES = frozenset({"locks", "__pycache__"})
LEFT_OUT_SUFFIXES = (".lock", ".tmp", ".log")


@dataclass(frozen=True, slots=True)
class TorchCompileCache:
    """The caches of one endpoint, at fixed paths below its scratch directory.

    :param root: nothing but these caches is below it.
    """

    root: Path

    @property
    def inductor(self) -> Path:
        return self.root / "inductor"

    @property
    def vllm(self) -> Path:
        return self.root / "vllm"

    def environment(self) -> dict[str, str]:
        """To be set before vLLM or torch is imported, in the engine's process as well."""
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.inductor), "VLLM_CACHE_ROOT": str(self.vllm)}

    def clear(self) -> None:
        """Before a compile, so that what is collected afterwards is its result and nothing else's."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.inductor.mkdir(parents=True)
        self.vllm.mkdir()

    def collect(self, directory: Path) -> int:
        """After the engine's warm-up: copies what was compiled to an entry's directory; returns the number of files.

        :raises NotFound: nothing was compiled: the engine ran eagerly, or with its caches elsewhere.
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
        """Before the engine is started: puts a restored entry where the engine looks. A copy: the engine writes there.

        Whatever was there before is gone then.
        """
        self.clear()
        for name in (self.inductor.name, self.vllm.name):
            if (directory / name).is_dir():
                shutil.copytree(directory / name, self.root / name, dirs_exist_ok=True)

    def _compiled(self) -> Iterator[Path]:
        for top in (self.inductor, *(self.vllm / name for name in VLLM)):
            for parent, names, files in os.walk(top):
                names[:] = sorted(set(names) - LEFT_OUT_DIRECTORIES)
                for file in sorted(files):
                    path = Path(parent, file)
                    if not file.endswith(LEFT_OUT_SUFFIXES) and path.is_file() and not path.is_symlink():
                        yield path
