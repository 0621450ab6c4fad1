"""How a compiler's cache of single graphs lies on a disk: one directory a graph, finished when its mark is there.

Two writers. neuronx-cc's own: `neuronxcc-<version>/MODULE_<graph>+<flags>/` (AWS Neuron SDK documentation, "Neuron
Persistent Cache"). The native plugin's: `neuron/compile_cache/<md5>/` below VLLM_CACHE_ROOT, with the mark
`.compilation_complete` (aws-neuron/aws-neuron-sdk#1371 and #1368).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """One of the two.

    :param name: what its modules are called by in a store, before their version.
    :param folder: the directory of a version's modules, below the root; `*` is the version.
    :param module: what a module's directory is called.
    :param neff: the compiled graph in it, as a glob.
    :param done: the mark of a finished module.
    :param log: the file that a failed compile leaves, which the compiler takes for a reason not to try again.
    :param left_out: files that stay on this machine.
    """

    name: str
    folder: str
    module: re.Pattern[str]
    neff: str
    done: str
    log: str | None
    left_out: re.Pattern[str]

    def directory(self, root: Path, version: str) -> Path:
        return root / self.folder.replace("*", version)

    def version(self, module: Path, known: str | None) -> str | None:
        """The version that made a module: its folder's, or where that does not tell, the one that is known."""
        prefix, star, _ = Path(self.folder).name.partition("*")
        return module.parent.name.removeprefix(prefix) if star else known


NEURONX_CC = CacheLayout(
    name="neuronxcc",
    folder="neuronxcc-*",
    module=re.compile(r"MODULE_\w+\+\w+"),
    neff="model.neff",
    done="model.done",
    log="model.log",
    left_out=re.compile(r".*\.lock|model\.log"),
)
NATIVE = CacheLayout(
    name="native",
    folder="neuron/compile_cache",
    module=re.compile(r"[0-9a-f]{8,64}"),
    neff="*.neff",
    done=".compilation_complete",
    log=None,
    left_out=re.compile(r".*\.lock|.*\.log|log-neuron-cc\.txt"),
)
