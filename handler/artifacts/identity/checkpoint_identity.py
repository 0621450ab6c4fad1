"""What a checkpoint is, apart from where it lies: its configuration, the shape of its tensors, and its content.

The graph depends on the first two, the weights on all three; so a fine-tune of the same shape shares the graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from blake3 import blake3

from handler.artifacts.identity.canonical_json import digest
from handler.errors import SettingError
from handler.json_value import Json
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectInfo, ObjectStore
from handler.storage.safetensors_header import BrokenFile, read_header
from handler.storage.storage_errors import NotFound

CONFIGS = ("config.json", "adapter_config.json", "params.json")
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class CheckpointIdentity:
    """One checkpoint, adapter or draft model.

    :param config: config.json (adapter_config.json) as it stands.
    :param shape: digest of every tensor's name, dtype and shape, over all files, however they are split.
    :param content: what each weights file is: `blake3:` and digest, or `etag:`, size and S3's etag.
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
    """Reads configuration and headers of a checkpoint in a directory or an S3 prefix.

    Content is digested for a directory, which reads every byte (some 1 to 4 GB/s); in S3 it is the etag that stands for
    it, so the same checkpoint has one identity in S3 and another on a disk: its weights are then kept once more.

    :param content: False leaves it out, where only the graph is wanted.
    :param configured: False where there need be no configuration beside the weights.
    :param only: the one file that counts.
    :raises SettingError: there is no configuration, or a file is broken.
    """
    listed = [info for info in files.list("") if "/" not in info.key and only in (None, info.key)]
    weights = [info for info in listed if info.key.endswith(WEIGHTS)]
    if any(info.key.endswith(".safetensors") for info in weights):
        weights = [info for info in weights if info.key.endswith(".safetensors")]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="identify") as pool:
        shapes = list(pool.map(lambda info: _shape(files, info, setting), weights))
        contents = list(pool.map(lambda info: _content(files, info), weights)) if content else []
    merged = {name: shape for one in shapes for name, shape in one.items()}
    names = [info.key for info in weights]
    config = _config(files, setting) if configured else {}
    return CheckpointIdentity(config, digest(merged), dict(zip(names, contents, strict=True)) if content else {})


def _config(files: ObjectStore, setting: str) -> dict[str, Json]:
    for name in CONFIGS:
        try:
            body, _ = files.get(name)
            value: Json = json.loads(body)
        except NotFound:
            continue
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise SettingError(setting, f"{files.uri}/{name} is not a JSON object", "Upload it again.")
        return value
    raise SettingError(setting, f"{files.uri} has none of {', '.join(CONFIGS)}", "Give the checkpoint's directory.")


def _shape(files: ObjectStore, info: ObjectInfo, setting: str) -> dict[str, Json]:
    """A pickled file's tensors cannot be listed without running it, so its name and size stand for them."""
    if not info.key.endswith(".safetensors"):
        return {info.key: info.size}
    try:
        found = read_header(reader(files, info.key), info.size)
    except BrokenFile as error:
        raise SettingError(setting, f"{files.uri}/{info.key} {error}", "Upload it again: it may be cut off.") from error
    return {name: [tensor.dtype, *tensor.shape] for name, tensor in found.items()}


def _content(files: ObjectStore, info: ObjectInfo) -> str:
    if not isinstance(files, DirectoryObjects):
        return f"etag:{info.size}:{info.etag.strip(chr(34))}"
    whole = blake3()
    for chunk in files.read(info.key):
        whole.update(chunk)
    return f"blake3:{whole.hexdigest()}"


def reader(files: ObjectStore, name: str) -> Callable[[int, int], bytes]:
    """Reads ranges of one file."""
    return lambda start, length: b"".join(files.read(name, start, length))
