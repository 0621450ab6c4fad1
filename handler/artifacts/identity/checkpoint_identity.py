"""Identifies a checkpoint independently of its location: by its configuration, its tensor shapes and its content.

The compiled graph depends on the first two, the sharded weights on all three. So a fine-tuned model with the same
shapes shares the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from handler.artifacts.identity.canonical_json import digest
from handler.errors import SettingError
from handler.json_value import Json, json_object
from handler.model.companions import Companions
from handler.neuron.checkpoint.checkpoint_files import SAFETENSORS, holds_weights
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectInfo, ObjectStore
from handler.storage.safetensors_header import BrokenFile, read_header
from handler.storage.storage_errors import NotFound

CONFIGS = ("config.json", "adapter_config.json", "params.json")
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class CheckpointIdentity:
    """The identity of one checkpoint, adapter or draft model.

    :param config: the content of config.json (adapter_config.json).
    :param shape: digest of the name, dtype and shape of every tensor in all files. How they are split does not matter.
    :param content: the identity of each weights file: `blake3:` and digest, or `etag:`, size and S3's etag.
    """

    config: Mapping[str, Json]
    shape: str
    content: Mapping[str, str] = field(default_factory=dict)


def identify(
    files: ObjectStore,
    setting: str = "ENDPOINT_MODEL",
    *,
    content: bool = True,
    configured: bool = True,
    only: str | None = None,
) -> CheckpointIdentity:
    """Reads the configuration and the tensor headers of a checkpoint in a directory or an S3 prefix.

    In a directory the content is digested, which reads every byte (about 1 to 4 GB/s). In S3 the etag is used instead.
    So the same checkpoint has one identity in S3 and another on disk, and its sharded weights are stored twice.

    :param content: False skips the content, if only the graph is needed.
    :param configured: False if there need not be a configuration beside the weights.
    :param only: the only file to consider.
    :raises SettingError: there is no configuration, or a file is broken.
    """
    listed = [info for info in files.list("") if "/" not in info.key and only in (None, info.key)]
    weights = [info for info in listed if holds_weights(info.key)]
    if any(info.key.endswith(SAFETENSORS) for info in weights):
        weights = [info for info in weights if info.key.endswith(SAFETENSORS)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="identify") as pool:
        shapes = list(pool.map(lambda info: _shape(files, info, setting), weights))
        contents = list(pool.map(lambda info: _content(files, info), weights)) if content else []
    merged = {name: shape for file_shapes in shapes for name, shape in file_shapes.items()}
    names = [info.key for info in weights]
    config = _config(files, setting) if configured else {}
    return CheckpointIdentity(config, digest(merged), dict(zip(names, contents, strict=True)) if content else {})


def identify_companions(
    companions: Companions, *, content: bool
) -> tuple[dict[str, CheckpointIdentity], CheckpointIdentity | None, CheckpointIdentity | None]:
    """The identities of adapters, draft and quantized weights, from their directories on this machine.

    Quantized weights that the compile itself makes are identified by the model and the configuration.

    :param content: whether their content is digested, which only the key of weights needs.
    :raises SettingError: a companion is broken.
    """
    adapters = {name: identify_at(path, "lora_modules", content=content) for name, path in companions.adapters.items()}
    draft = companions.draft and identify_at(companions.draft, "speculative_model", content=content)
    quantized = None
    if companions.quantized is not None and has_weights(Path(companions.quantized)):
        quantized = identify_at(companions.quantized, "quantized_checkpoints_path", content=content, configured=False)
    return adapters, draft or None, quantized


def has_weights(path: Path) -> bool:
    """Whether a path is a file, or a directory with a file of weights."""
    return path.is_file() or (path.is_dir() and any(holds_weights(each.name) for each in path.iterdir()))


def identify_at(where: str, setting: str, *, content: bool, configured: bool = True) -> CheckpointIdentity:
    """The identity of a directory or a file on this machine, as `identify`, or of a hub id.

    A hub id is identified by its name, so a new revision is not noticed.
    """
    path = Path(where)
    if not path.exists():
        return CheckpointIdentity({"hub": where}, "", {"hub": where})
    directory, only = (path, None) if path.is_dir() else (path.parent, path.name)
    return identify(DirectoryObjects(directory), setting, content=content, configured=configured, only=only)


def _config(files: ObjectStore, setting: str) -> dict[str, Json]:
    for name in CONFIGS:
        try:
            value = json_object(files.get(name)[0])
        except NotFound:
            continue
        if value is None:
            raise SettingError(setting, f"{files.uri}/{name} is not a JSON object", "Upload it again.")
        return value
    raise SettingError(setting, f"{files.uri} has none of {', '.join(CONFIGS)}", "Give the checkpoint's directory.")


def _shape(files: ObjectStore, info: ObjectInfo, setting: str) -> dict[str, Json]:
    """Returns the tensor shapes of one file. A pickled file cannot be listed without running it: its size is used."""
    if not info.key.endswith(SAFETENSORS):
        return {info.key: info.size}
    try:
        tensors = read_header(reader(files, info.key), info.size)
    except BrokenFile as error:
        raise SettingError(setting, f"{files.uri}/{info.key} {error}", "Upload it again. It may be cut off.") from error
    return {name: [tensor.dtype, *tensor.shape] for name, tensor in tensors.items()}


def _content(files: ObjectStore, info: ObjectInfo) -> str:
    if not isinstance(files, DirectoryObjects):
        return f"etag:{info.size}:{info.etag.strip(chr(34))}"
    whole = blake3()
    for chunk in files.read(info.key):
        whole.update(chunk)
    return f"blake3:{whole.hexdigest()}"


def reader(files: ObjectStore, name: str) -> Callable[[int, int], bytes]:
    """Returns a function that reads a range of one file, given start and length."""
    return lambda start, length: b"".join(files.read(name, start, length))
