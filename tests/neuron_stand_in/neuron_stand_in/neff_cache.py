"""The compiler's cache underneath: one directory for each graph, keyed by the graph and the compiler's flags.

`neuronxcc-<version>/MODULE_<graph>+<flags>/{model.hlo_module.pb, compile_flags.json, model.neff, model.done}`; a
failed compile leaves `model.log` and no neff, and is never tried again unless the flags say so (AWS Neuron SDK
documentation, "Neuron Persistent Cache"; the message: aws-neuron/aws-neuron-sdk#1023).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RETRY = "--retry_failed_compilation"


@dataclass(frozen=True, slots=True)
class Module:
    """One graph's place in the cache."""

    directory: Path
    flags: tuple[str, ...]

    @property
    def compiled(self) -> bool:
        return (self.directory / "model.done").is_file() and (self.directory / "model.neff").is_file()

    @property
    def poisoned(self) -> bool:
        return (self.directory / "model.log").is_file() and not (self.directory / "model.neff").is_file()

    def neff(self) -> bytes | None:
        """The compiled graph; None on a miss.

        :raises RuntimeError: an earlier compile failed, and is not to be tried again.
        """
        if self.compiled:
            return (self.directory / "model.neff").read_bytes()
        if self.poisoned and RETRY not in self.flags:
            raise RuntimeError(f"Got a cached failed neff at {self.directory}/model.neff. Will skip compilation")
        return None

    def begin(self, hlo: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "model.hlo_module.pb.lock").touch()
        (self.directory / "model.hlo_module.pb").write_bytes(hlo)
        (self.directory / "compile_flags.json").write_text(json.dumps(self.flags))

    def succeed(self, neff: bytes) -> None:
        (self.directory / "model.log").unlink(missing_ok=True)
        (self.directory / "model.neff").write_bytes(neff)
        (self.directory / "model.done").touch()

    def fail(self, reason: str) -> None:
        (self.directory / "model.log").write_text(reason)


def cache_root(environment: Mapping[str, str]) -> Path | None:
    """The cache's directory; None where none is set (the real one then takes /var/tmp/neuron-compile-cache).

    :raises NotImplementedError: an s3:// address, which the real one takes.
    """
    url = environment.get("NEURON_COMPILE_CACHE_URL")
    if url and "://" in url:
        raise NotImplementedError(f"the stand-in has no remote compile cache: {url}")
    return Path(url) if url else None


def module(root: Path, compiler: str, hlo: bytes, flags: Sequence[str], workdir: Path) -> Module:
    """The directory of a graph compiled with these flags in this work directory.

    The work directory comes into the key with the log file that the compiler is told to write there, unless the flags
    name one.
    """
    named = any(flag.startswith("--logfile") for flag in flags)
    keyed = list(flags) if named else [*flags, f"--logfile={workdir.absolute()}/log-neuron-cc.txt"]
    graph = hashlib.sha256(hlo).hexdigest()[:20]
    flag_digest = hashlib.md5(json.dumps(keyed).encode(), usedforsecurity=False).hexdigest()[:8]
    return Module(root / f"neuronxcc-{compiler}" / f"MODULE_{graph}+{flag_digest}", tuple(keyed))
