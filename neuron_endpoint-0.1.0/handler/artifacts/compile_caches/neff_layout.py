"""The directory layouts of the compiler caches. Each graph has a directory. A marker file shows that it is finished.

There are two layouts. neuronx-cc writes `neuronxcc-<version>/MODULE_<graph>+<flags>/` (AWS Neuron SDK documentation,
"Neuron Persistent Cache"). The native plugin writes `neuron/compile_cache/<md5>/` below VLLM_CACHE_ROOT. Its marker is
`.compilation_complete` (aws-neuron/aws-neuron-sdk#1371 and #1368).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """One directory layout.

    :param name: the prefix of its modules in a store, before the version.
    :param folder: the directory of one version's modules, below the root; `*` stands for the version.
    :param module: pattern of the name of a module's directory.
    :param neff: glob of the compiled graph in it.
    :param done: the marker file of a finished module.
    :param log: the file that a failed compile leaves. The compiler does not try again while it exists.
    :param excluded: files that are not saved to the store.
    """

    name: str
    folder: str
    module: re.Pattern[str]
    neff: str
    done: str
    log: str | None
    excluded: re.Pattern[str]

    def directory(self, root: Path, version: str) -> Path:
        return root / self.folder.replace("*", version)

    def version(self, module: Path, known: str | None) -> str | None:
        """Returns the compiler version of a module: from its folder's name, or else `known`."""
        prefix, star, _ = Path(self.folder).name.partition("*")
        return module.parent.name.removeprefix(prefix) if star else known


NEURONX_CC = CacheLayout(
    name="neuronxcc",
    folder="neuronxcc-*",
    module=re.compile(r"MODULE_\w+\+\w+"),
    neff="model.neff",
    done="model.done",
    log="model.log",
    excluded=re.compile(r".*\.lock|model\.log"),
)
NATIVE = CacheLayout(
    name="native",
    folder="neuron/compile_cache",
    module=re.compile(r"[0-9a-f]{8,64}"),
    neff="*.neff",
    done=".compilation_complete",
    log=None,
    excluded=re.compile(r".*\.lock|.*\.log|log-neuron-cc\.txt"),
)
