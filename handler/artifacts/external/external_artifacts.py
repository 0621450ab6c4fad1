"""Examines compiled artifacts that were made by other software: a directory or an S3 prefix without our manifest.

NxDI writes `neuron_config.json` before it traces, `model.pt` after, then, if requested,
`weights/tp{rank}_sharded_checkpoint.safetensors` (aws-neuron/neuronx-distributed-inference,
models/application_base.py). For a multimodal model the last two are below `text_model/` and `vision_model/`. It records
no versions and no digests. So the files are checked as far as possible, and the unknown facts are listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from handler.artifacts.identity.checkpoint_identity import reader
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.storage.object_store import ObjectStore
from handler.storage.safetensors_header import BrokenFile, read_header
from handler.storage.storage_errors import TooLarge
from handler.storage.torchscript_check import check_torchscript

CONFIG, GRAPH, SHARD = "neuron_config.json", "model.pt", "weights/tp{}_sharded_checkpoint.safetensors"
SETTING = "NEURON_COMPILED_ARTIFACTS"
LARGEST_CONFIG = 16 * 1024 * 1024
# Facts that no file in such a directory tells.
NOT_VOUCHED = (
    "the versions of compiler, NxD, NxDI and vLLM that made it",
    "the platform that it was compiled for (inf2, trn1, trn2, trn3)",
    "the content: no digest was recorded, so damage inside a file is found only when the file is loaded",
    "the origin: model.pt is executable and not signed",
    "the checkpoint that its weights are from",
)


@dataclass(frozen=True, slots=True)
class ExternalPart:
    """One compiled model. `name` is "", or `text_model` or `vision_model` of a multimodal model.

    :param ranks: the ranks that need a weights file. Empty if the weights are sharded when they are loaded.
    :param shards: the ranks whose weights file is complete.
    """

    name: str
    graph: bool
    ranks: tuple[int, ...]
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExternalArtifacts:
    """The result of an examination. `config` is neuron_config.json; empty if it is missing or broken.

    :param findings: errors keep the artifacts from loading; warnings tell what may surprise.
    :param not_vouched: the facts that cannot be known from the files.
    """

    where: str
    config: Mapping[str, Json]
    parts: tuple[ExternalPart, ...]
    size: int
    findings: tuple[Finding, ...]
    not_vouched: tuple[str, ...] = NOT_VOUCHED

    @property
    def loadable(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def recognised(names: Mapping[str, int]) -> bool:
    """Whether these relative paths look like compiled artifacts, complete or not."""
    return CONFIG in names or GRAPH in names or f"text_model/{GRAPH}" in names


def describe(files: ObjectStore) -> ExternalArtifacts:
    """Examines names, sizes, zip directories and safetensors headers in a directory or an S3 prefix."""
    sizes = {info.key: info.size for info in files.list("")}
    findings: list[Finding] = []
    config = _config(files, sizes, findings)
    multimodal = any(name.startswith(("text_model/", "vision_model/")) for name in sizes)
    parts = tuple(
        _part(files, sizes, name, _neuron_config(config, key), findings)
        for name, key in (
            (("text_model", "text_config"), ("vision_model", "vision_config")) if multimodal else (("", ""),)
        )
    )
    return ExternalArtifacts(files.uri, config, parts, sum(sizes.values()), tuple(findings))


def _config(files: ObjectStore, sizes: Mapping[str, int], findings: list[Finding]) -> dict[str, Json]:
    if CONFIG not in sizes:
        findings.append(_error("artifacts-no-config", f"{files.uri} has no {CONFIG}", "Give the compile's directory."))
        return {}
    try:
        value: Json = json.loads(files.get(CONFIG, limit=LARGEST_CONFIG)[0])
    except (ValueError, RecursionError, TooLarge):
        value = None
    if not isinstance(value, dict):
        findings.append(_error("artifacts-broken-config", f"{CONFIG} is not a JSON object", "Compile again."))
        return {}
    return value


def _part(
    files: ObjectStore, sizes: Mapping[str, int], name: str, config: Mapping[str, Json], findings: list[Finding]
) -> ExternalPart:
    prefix = f"{name}/" if name else ""
    graph = _graph(files, sizes, prefix + GRAPH, findings)
    ranks: tuple[int, ...] = ()
    if config.get("save_sharded_checkpoint") and not config.get("skip_sharding"):
        first, count = _int(config, "start_rank_id", 0), _int(config, "local_ranks_size", 0)
        count = count or _int(config, "world_size", 0) or _int(config, "tp_degree", 1)
        ranks = tuple(range(first, first + min(count, 4096)))
    elif config:
        findings.append(
            Finding(
                "artifacts-sharded-on-load",
                Severity.WARNING,
                SETTING,
                f"according to {prefix}{CONFIG} no shards were saved, so every start shards the checkpoint at the "
                "model's path (a 405B model takes 187 s that way, 108 s from shards)",
                "Compile with save_sharded_checkpoint.",
            )
        )
    shards = tuple(rank for rank in ranks if _shard(files, sizes, prefix + SHARD.format(rank), findings))
    missing = [rank for rank in ranks if prefix + SHARD.format(rank) not in sizes]
    if missing:
        findings.append(
            _error(
                "artifacts-shards-missing",
                f"{prefix}weights/ has files for {len(ranks) - len(missing)} of {len(ranks)} ranks; the first missing "
                f"file is {SHARD.format(missing[0])}",
                "Copy the whole directory again, or compile again.",
            )
        )
    return ExternalPart(name, graph, ranks, shards)


def _graph(files: ObjectStore, sizes: Mapping[str, int], path: str, findings: list[Finding]) -> bool:
    if path not in sizes:
        why = f"there is no {path}" + ("; the compile was interrupted" * (CONFIG in sizes))
        findings.append(_error("artifacts-interrupted-compile", why, "Compile again."))
        return False
    return _whole(files, path, sizes[path], "artifacts-broken-graph", findings)


def _shard(files: ObjectStore, sizes: Mapping[str, int], path: str, findings: list[Finding]) -> bool:
    return path in sizes and _whole(files, path, sizes[path], "artifacts-broken-shard", findings)


def _whole(files: ObjectStore, path: str, size: int, code: str, findings: list[Finding]) -> bool:
    try:
        if path.endswith(GRAPH):
            check_torchscript(reader(files, path), size)
        else:
            read_header(reader(files, path), size)
    except BrokenFile as error:
        findings.append(_error(code, f"{path} {error}", "Copy it again, or compile again."))
        return False
    return True


def _neuron_config(config: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    inner = config.get(key)
    for holder in (inner if isinstance(inner, dict) else {}, config):
        found = holder.get("neuron_config")
        if isinstance(found, dict):
            return found
    return {}


def _int(config: Mapping[str, Json], name: str, default: int) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _error(code: str, why: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, SETTING, why, fix)
