"""Finds the configured model, and downloads it if it is in S3."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from handler.config.endpoint_config import EndpointConfig
from handler.errors import NoDirectory, SettingError
from handler.neuron.checkpoint.checkpoint_files import LocalFiles, read_json
from handler.neuron.checkpoint.checkpoint_reader import second_formats
from handler.neuron.checkpoint.remote_code import check_remote_code
from handler.neuron.planning.file_examination import require_sound_files
from handler.regular_files import exists
from handler.storage.s3_download import download_prefix
from handler.storage.transfer.transfer_progress import ByteProgress, ignore_bytes


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the engine can load.

    :param path: a local directory or a hub id, as vLLM's `--model` takes it.
    :param names: the names that requests may use if `served_model_name` is not set. Replies show the first one.
    :param size: the bytes on disk; 0 for a hub id.
    """

    path: str
    names: tuple[str, ...]
    size: int


def fetch_model(config: EndpointConfig, progress: ByteProgress = ignore_bytes) -> Model:
    """The configured model, on this machine.

    :param progress: called with the bytes done and the total bytes during a download.
    :raises SettingError: the model does not exist, is not a model, or would run code that nobody trusts.
    """
    name = config.model
    setting = config.source("model").name or "ENDPOINT_MODEL"
    if name.startswith("s3://"):
        return _local(download(name, config, setting, progress), name, setting, config)
    if name.startswith(("/", "./", "../")) or exists(Path(name)):
        return _local(Path(name), name, setting, config)
    if "://" in name or name.count("/") > 1:
        raise NoDirectory(setting, name)
    return Model(path=name, names=(name,), size=0)


def _shown_name(path: Path, name: str) -> str:
    """The hub id that config.json gives in `_name_or_path`, or else the name of the model's folder. Never a path."""
    hub_id = (read_json(LocalFiles(path, name), "config.json") or {}).get("_name_or_path")
    if isinstance(hub_id, str) and re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", hub_id):
        return hub_id
    return PurePosixPath(name.rstrip("/")).name if "://" in name else path.resolve().name


def download(
    uri: str, config: EndpointConfig, setting: str, progress: ByteProgress = ignore_bytes, *, latest: bool = False
) -> Path:
    """Downloads a model or an adapter from S3. Returns its directory, which is the same for the same URI.

    Weights that are there in a second format are left out, unless a setting or the owner's code may want them.

    :param latest: what S3 has now, in a directory of its own: a running endpoint replaces an older version by it.
    :raises SettingError: there is nothing, or a key would leave the directory.
    :raises StartFailed: S3 denied access or the download failed.
    """
    kind = "" if _is_plain(config) else "\0whole"  # other files than a start that leaves some out
    target = config.scratch / "models" / sha256(f"{uri}{kind}".encode()).hexdigest()[:16]
    return download_prefix(uri, target, setting, progress, latest=latest, unread=left_out_by(config))


def left_out_by(config: EndpointConfig) -> Callable[[Collection[str]], Collection[str]]:
    """A function that returns those of a model's files that no download needs."""
    return second_formats if _is_plain(config) else lambda paths: ()


def _is_plain(config: EndpointConfig) -> bool:
    return config.engine != "none" and config.engine_args.get("load_format") in (None, "auto", "safetensors")


def _local(path: Path, name: str, setting: str, config: EndpointConfig) -> Model:
    if not path.is_dir():
        raise NoDirectory(setting, path)
    is_model = (path / "config.json").is_file() or (path / "params.json").is_file()
    if not is_model and config.engine != "none":
        names = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
        raise SettingError(
            setting, f"{path} has no config.json (found: {names})", "Put the model's files at its top level."
        )
    if config.engine != "none":
        require_sound_files(replace(config, model=str(path)), setting)
    elif not config.trust_remote_code:
        check_remote_code(path, setting)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return Model(path=str(path), names=(_shown_name(path, name), name), size=size)
