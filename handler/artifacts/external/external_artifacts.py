"""Examines compiled artifacts that were made by other software: a directory or an S3 prefix without our manifest.

NxDI writes `neuron_config.json` before it traces, `model.pt` after, then, if requested,
`weights/tp{rank}_sharded_checkpoint.safetensors` (aws-neuron/neuronx-distributed-inference,
models/application_base.py). For a multimodal model the last two are below `text_model/` and `vision_model/`. It records
no versions and no digests. So the files are checked as far as possible, and the unknown facts are listed.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from handler.artifacts.identity.checkpoint_identity import reader
from handler.config.finding import Finding, Severity
from handler.json_value import Json, json_object, mapping, whole_number
from handler.storage.object_store import ObjectStore
from handler.storage.safetensors_header import BrokenFile, ReadRange, read_header
from handler.storage.storage_errors import TooLarge

CONFIG, GRAPH, SHARD = "neuron_config.json", "model.pt", "weights/tp{}_sharded_checkpoint.safetensors"
SHARDED_ON_LOAD = "artifacts-sharded-on-load"
SETTING = "NEURON_COMPILED_ARTIFACTS"
LARGEST_CONFIG = 16 * 1024 * 1024
# The directory of a zip file is read at once.
LARGEST_READ = 64 * 1024 * 1024
# Facts that no file in such a directory tells.
NOT_VOUCHED = (
    "the versions of compiler, NxD, NxDI and vLLM that made it",
    "the platform that it was compiled for (inf2, trn1, trn2, trn3)",
    "the content: no digest was recorded, so damage inside a file is found only when the file is loaded",
    "the origin: model.pt is executable and not signed",
    "the checkpoint that its weights are from",
)


@dataclass(frozen=True, slots=True)
class ExternalArtifacts:
    """The result of an examination. `config` is neuron_config.json; empty if it is missing or broken.

    :param findings: errors keep the artifacts from loading; warnings tell what may surprise.
    """

    where: str
    config: Mapping[str, Json]
    findings: tuple[Finding, ...]

    @property
    def loadable(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def saved_neuron_config(document: Mapping[str, Json], part: str) -> Mapping[str, Json] | None:
    """Returns the NeuronConfig of a saved configuration: at the top, or one level down for a multimodal model.

    :param part: `text_config` or `vision_config`.
    """
    for holder in (mapping(document.get(part)), document):
        config = holder.get("neuron_config")
        if isinstance(config, dict):
            return config
    return None


def describe(files: ObjectStore) -> ExternalArtifacts:
    """Examines names, sizes, zip directories and safetensors headers in a directory or an S3 prefix."""
    return _ExternalExamination(files).result()


class _ExternalExamination:
    def __init__(self, files: ObjectStore) -> None:
        self._files = files
        self._sizes = {info.key: info.size for info in files.list("")}
        self._findings: list[Finding] = []

    def result(self) -> ExternalArtifacts:
        config = self._config()
        multimodal = any(name.startswith(("text_model/", "vision_model/")) for name in self._sizes)
        names = {"text_model": "text_config", "vision_model": "vision_config"} if multimodal else {"": ""}
        for name, part in names.items():
            self._examine(name, saved_neuron_config(config, part) or {})
        return ExternalArtifacts(self._files.uri, config, tuple(self._findings))

    def _config(self) -> dict[str, Json]:
        if CONFIG not in self._sizes:
            self._report("artifacts-no-config", f"{self._files.uri} has no {CONFIG}", "Give the compile's directory.")
            return {}
        try:
            value = json_object(self._files.get(CONFIG, limit=LARGEST_CONFIG)[0])
        except TooLarge:
            value = None
        if value is None:
            self._report("artifacts-broken-config", f"{CONFIG} is not a JSON object", "Compile again.")
            return {}
        return value

    def _examine(self, name: str, config: Mapping[str, Json]) -> None:
        """Examines one compiled model. `name` is "", or `text_model` or `vision_model` of a multimodal one."""
        prefix = f"{name}/" if name else ""
        self._examine_graph(prefix + GRAPH)
        ranks = range(0)  # those that need a weights file
        if config.get("save_sharded_checkpoint") and not config.get("skip_sharding"):
            first, count = _int(config, "start_rank_id", 0), _int(config, "local_ranks_size", 0)
            count = count or _int(config, "world_size", 0) or _int(config, "tp_degree", 1)
            ranks = range(first, first + min(count, 4096))
        elif config:
            why = (
                f"according to {prefix}{CONFIG} no shards were saved, so every start shards the checkpoint at the "
                "model's path (a 405B model takes 187 s that way, 108 s from shards)"
            )
            fix = "Compile with save_sharded_checkpoint."
            self._report(SHARDED_ON_LOAD, why, fix, Severity.WARNING)
        present = [rank for rank in ranks if prefix + SHARD.format(rank) in self._sizes]
        for rank in present:
            self._read(prefix + SHARD.format(rank), read_header, "artifacts-broken-shard")
        if len(present) < len(ranks):
            missing = next(rank for rank in ranks if rank not in present)
            self._report(
                "artifacts-shards-missing",
                f"{prefix}weights/ has files for {len(present)} of {len(ranks)} ranks; the first missing "
                f"file is {SHARD.format(missing)}",
                "Copy the whole directory again, or compile again.",
            )

    def _examine_graph(self, path: str) -> None:
        if path in self._sizes:
            self._read(path, check_torchscript, "artifacts-broken-graph")
            return
        why = f"there is no {path}" + ("; the compile was interrupted" * (CONFIG in self._sizes))
        self._report("artifacts-interrupted-compile", why, "Compile again.")

    def _read(self, path: str, check: Callable[[ReadRange, int], object], code: str) -> None:
        """Reads as much of a file as shows whether it is complete."""
        try:
            check(reader(self._files, path), self._sizes[path])
        except BrokenFile as error:
            self._report(code, f"{path} {error}", "Copy it again, or compile again.")

    def _report(self, code: str, why: str, fix: str, severity: Severity = Severity.ERROR) -> None:
        self._findings.append(Finding(code, severity, SETTING, why, fix))


def _int(config: Mapping[str, Json], name: str, default: int) -> int:
    value = whole_number(config.get(name))
    return value if value is not None and value >= 0 else default


def check_torchscript(read: ReadRange, size: int) -> None:
    """Checks that a TorchScript file (a zip) is complete, by the directory at its end. Loads and runs nothing.

    `torch.jit.load` of a truncated `model.pt` raises RuntimeError. The plugin does not catch it, so the engine would
    end.

    :raises BrokenFile: it is not a zip file, it was cut off, or it contains no TorchScript.
    """
    try:
        with zipfile.ZipFile(_Ranges(read, size)) as archive:
            members = archive.infolist()
            start = archive.start_dir
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise BrokenFile("is not a complete zip file, as TorchScript is: it was cut off or never finished") from error
    if any(member.header_offset + member.compress_size > start for member in members):
        raise BrokenFile("is a zip file whose directory refers to bytes that are missing")
    if not any(member.filename.endswith("/constants.pkl") for member in members):
        raise BrokenFile("is a zip file, but not TorchScript: it has no constants.pkl")


class _Ranges(io.RawIOBase):
    """A seekable file for `zipfile` over a range reader. One read returns at most `LARGEST_READ` bytes."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("before the file's beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = max(min(self._size - self._at, size if size >= 0 else self._size), 0)
        if length > LARGEST_READ:
            raise ValueError("its directory is too large")
        body = self._read(self._at, length) if length else b""
        self._at += len(body)
        return body
