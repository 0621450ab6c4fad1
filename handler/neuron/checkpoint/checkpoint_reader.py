"""Reads the facts of a checkpoint from config.json and, if needed, from the headers of its safetensors files.

Weights are never read. Two small files are enough if `model.safetensors.index.json` has the total size, as all index
files that transformers writes do. Without one, the header of each file is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from handler.config.values import shown
from handler.errors import NoDirectory, SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import (
    SAFETENSORS,
    SETTING,
    CheckpointFiles,
    LocalFiles,
    S3Files,
    holds_weights,
    read_json,
)
from handler.neuron.checkpoint.model_facts import ModelFacts, facts_from
from handler.storage.safetensors_header import BrokenFile, Tensor, read_header, total_sizes

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# The same weights for other loaders, by the names that they have on the hub. A graph (model.pt) has none of these.
SECOND_FORMATS = ("pytorch_model*.bin", "consolidated*.pth", "tf_model*.h5", "flax_model*.msgpack", "rust_model.ot")
SECOND_FOLDERS = ("original/", "onnx/", "openvino/")
LM_HEAD = "lm_head.weight"
# optimum-neuron writes it beside the graphs (configuration_utils.py). NxD Inference's has another shape.
EXPORT, EXPORTER = "neuron_config.json", "optimum_neuron_version"
THREADS = 16


def read_facts(
    model: str, *, client: S3Client | None = None, environ: Mapping[str, str] | None = None
) -> ModelFacts | None:
    """The facts of a model.

    :returns: None for a hub id that is not on this machine (nothing is downloaded), and for a checkpoint in
        Mistral's own format (params.json).
    :raises SettingError: there is no such model, or its JSON or its headers are invalid.
    :raises ArtifactError: S3 refused the request, or cannot be reached.
    """
    files = open_checkpoint(model, client=client, environ=environ)
    return None if files is None else _facts(files, local=isinstance(files, LocalFiles) and not files.hub)


def open_checkpoint(
    model: str, *, client: S3Client | None = None, environ: Mapping[str, str] | None = None
) -> CheckpointFiles | None:
    """The files of a model: a directory, an S3 prefix, or a hub id in the local hub cache.

    :param client: an S3 client to use instead of a new one.
    :param environ: the environment with the path of the hub cache (`HF_HUB_CACHE`, `HF_HOME`).
    :returns: None for a hub id that is not on this machine.
    :raises SettingError: there is no such model.
    """
    if model.startswith("s3://"):
        return S3Files(model, client)
    try:
        directory = Path(model).expanduser()
        exists = directory.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, an unknown user, a NUL character
        problem = f"'{model[:60]}' cannot be a directory or a hub id"
        raise SettingError(SETTING, problem, "Give a directory, an s3:// URI or a hub id.") from None
    if exists:
        return LocalFiles(directory, model)
    if model.startswith(("/", "./", "../", "~")) or ":" in model or model.count("/") > 1:
        raise NoDirectory(SETTING, model)
    snapshot = cached_snapshot(model, os.environ if environ is None else environ)
    return LocalFiles(snapshot, model, hub=True) if snapshot else None


def cached_snapshot(model: str, environ: Mapping[str, str]) -> Path | None:
    """The directory of a model's main revision in the hub cache; None if it is not there."""
    home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")
    folder = Path(cache).expanduser() / f"models--{model.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = folder / "snapshots" / revision
    return snapshot if revision.isalnum() and (snapshot / "config.json").is_file() else None


def _facts(files: CheckpointFiles, *, local: bool) -> ModelFacts | None:
    config = read_json(files, "config.json")
    if config is None:
        if files.read("params.json") is not None:
            return None
        raise SettingError(SETTING, f"{files.where} has no config.json", "Put the model's files at its top level.")
    parameters, weight_bytes, dtypes, tensors = _sizes(files)
    facts = facts_from(config, files.where, local, parameters, weight_bytes, dtypes)
    facts = replace(facts, lm_head=any(name.endswith(LM_HEAD) for name in tensors) if tensors else None)
    # An export's weights are below it, or on the hub. From S3 every file is a request.
    exported = None if tensors and isinstance(files, S3Files) else read_json(files, EXPORT)
    return replace(facts, exported=exported) if exported and EXPORTER in exported else facts


def _sizes(files: CheckpointFiles) -> tuple[int | None, int | None, Mapping[str, int], list[str]]:
    """The parameters, bytes, bytes by data type, and names of the tensors, with as few reads as possible."""
    index = read_json(files, INDEX)
    if index is not None:
        metadata, tensors = index.get("metadata"), index.get("weight_map")
        if isinstance(metadata, dict):
            total, parameters = _count(metadata.get("total_size")), _count(metadata.get("total_parameters"))
            if total:
                return parameters, total, {}, list(tensors) if isinstance(tensors, dict) else []
    names = shards_or_all(files)
    if not names:
        return None, None, {}, []
    with ThreadPoolExecutor(min(THREADS, len(names)), thread_name_prefix="headers") as pool:
        headers = list(pool.map(lambda name: header_of(files, name), names))
    sizes = total_sizes(headers)
    return sizes.parameters, sizes.total, sizes.bytes_by_dtype, [name for header in headers for name in header]


def shards_or_all(files: CheckpointFiles) -> list[str]:
    """The safetensors files of a model: those that an index names, else all."""
    if (index := read_json(files, INDEX)) is not None:
        return shards_of(index.get("weight_map"))
    # Mistral's own format, which is beside transformers', has other names.
    others = [name for name in files.listing() if not name.startswith("consolidated")]
    names = sorted(name for name in others if holds_weights(name, SAFETENSORS))
    return [SINGLE] if SINGLE in names else names


def second_formats(paths: Collection[str]) -> set[str]:
    """The files of a model that hold its weights once more, and that no engine reads beside the safetensors."""
    if SINGLE not in paths and INDEX not in paths:
        return set()
    if any(path.startswith("code/") or path == "model.py" for path in paths):
        return set()  # the owner's code may read them
    tops = {path for path in paths if "/" not in path}
    again = {path for path in tops if any(fnmatchcase(path, pattern) for pattern in SECOND_FORMATS)}
    return again | {path for path in paths if path.startswith(SECOND_FOLDERS)}


def header_of(files: CheckpointFiles, name: str, size: int | None = None) -> dict[str, Tensor]:
    """The tensors of one file. :raises SettingError: it is not a safetensors file, or not of the given size."""
    try:
        return read_header(partial(files.read_range, name), size)
    except BrokenFile as error:
        fix = "Upload the file again; it may be cut off."
        raise SettingError(f"{files.where}/{name}", f"is not a safetensors file: it {error}", fix) from None


def shards_of(weight_map: Json) -> list[str]:
    """The files that an index names. A file outside of the checkpoint is an error, and a name that no file has."""
    if not isinstance(weight_map, dict):
        return []
    names = {name for name in weight_map.values() if isinstance(name, str)}
    outside = [name for name in names if not name or "/" in name or name.startswith(".") or not name.isprintable()]
    if outside:
        why = f"{INDEX} names the file {shown(outside[0])}"
        raise SettingError(SETTING, why, "Keep all files at the top level.")
    return sorted(names)


def _count(value: Json) -> int | None:
    """A positive count. Some versions of transformers write `total_size` as a float."""
    return int(value) if isinstance(value, int | float) and 0 < value < 1e18 else None
