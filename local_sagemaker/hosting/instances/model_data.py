"""Downloads a model's data to where a container finds it: ``model/`` and ``additional-model-data-sources/``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from handler.storage.archive import unpack
from handler.storage.storage_errors import UnsafeArchive
from local_sagemaker.hosting.instances.s3_access import ObjectError, Objects, S3Location

READ_ONLY_DIRECTORY = 0o555
READ_ONLY_FILE = 0o444
GZIP = b"\x1f\x8b"


class DataError(Exception):
    """A model's data cannot be downloaded. The message is the FailureReason."""


def fetch_within(seconds: float, fetch: Callable[[], None], variant: str) -> None:
    """Downloads within a time limit (ModelDataDownloadTimeoutInSeconds).

    :raises DataError: the download failed or took too long.
    """
    try:
        ThreadPoolExecutor(1, thread_name_prefix="model data").submit(fetch).result(seconds)
    except TimeoutError as error:
        raise DataError(
            f"Model data download for production variant {variant} timed out. Please increase the "
            "ModelDataDownloadTimeoutInSeconds of the endpoint configuration."
        ) from error


def materialise(container: dict[str, Any], base: Path, objects: Objects) -> None:
    """Fills ``base``, a container's /opt/ml, and makes the files read-only.

    :raises DataError: an object is missing, an archive is broken or unsafe, or a key is not a path.
    """
    model = base / "model"
    model.mkdir(parents=True, exist_ok=True)
    try:
        if (url := container.get("ModelDataUrl")) and container.get("Mode") != "MultiModel":
            _archive(url, model, objects)
        if source := container.get("ModelDataSource"):
            _source(source["S3DataSource"], model, objects)
        for source in container.get("AdditionalModelDataSources", []):
            channel = base / "additional-model-data-sources" / source["ChannelName"]
            channel.mkdir(parents=True, exist_ok=True)
            _source(source["S3DataSource"], channel, objects)
            make_read_only(channel)
    except (ObjectError, OSError) as error:
        raise DataError(f"Failed to download model data: {error}. Please ensure that the object exists.") from error
    make_read_only(model)


def _source(s3: dict[str, Any], to: Path, objects: Objects) -> None:
    if s3["S3DataType"] == "S3Prefix":
        _prefix(s3["S3Uri"], to, objects)
    elif s3["CompressionType"] == "Gzip":
        _archive(s3["S3Uri"], to, objects)
    else:
        location = S3Location.parse(s3["S3Uri"])
        objects.download(location, _inside(to, location.key.rpartition("/")[2]))


def _archive(url: str, to: Path, objects: Objects) -> None:
    packed, unpacked = to.parent / f"{to.name}.tar.gz", to.parent / f"{to.name}.unpacked"
    try:
        objects.download(S3Location.parse(url), packed)
        with packed.open("rb") as stream:
            if stream.peek(2)[:2] != GZIP:
                raise UnsafeArchive(packed.name, "it is not compressed by gzip")
            unpack(stream, unpacked, packed.name)
        unpacked.replace(to)
    except UnsafeArchive as error:
        raise DataError(
            f"Failed to extract model data archive from {url}: {error.problem}. Please ensure that the object "
            "is a valid tar.gz archive of files and directories."
        ) from error
    finally:
        packed.unlink(missing_ok=True)


def _prefix(uri: str, to: Path, objects: Objects) -> None:
    prefix = S3Location.parse(uri)
    keys = objects.keys(prefix)
    if not keys:
        raise DataError(f"Could not find model data at {uri}.")
    for key in keys:
        target = _inside(to, key.removeprefix(prefix.key))
        if target.exists():
            raise DataError(f"Failed to download model data: s3://{prefix.bucket}/{key} is both a file and a directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise DataError(f"Failed to download model data: a part of {key} is both a file and a directory") from error
        objects.download(S3Location(prefix.bucket, key), target)


def _inside(directory: Path, relative: str) -> Path:
    """Returns the path of a key below the directory.

    :raises DataError: the key is not the path of a file there, for example a "folder" object or one with dots.
    """
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise DataError(f"Failed to download model data: the key {relative!r} can't be a file's path")
    return directory.joinpath(*parts)


def make_read_only(directory: Path) -> None:
    for parent, _directories, files in os.walk(directory, topdown=False):
        for name in files:
            (Path(parent) / name).chmod(READ_ONLY_FILE)
        Path(parent).chmod(READ_ONLY_DIRECTORY)


def remove(directory: Path) -> None:
    """Removes a directory tree that may be read-only."""
    for parent, _directories, _files in os.walk(directory):
        Path(parent).chmod(0o755)
    shutil.rmtree(directory, ignore_errors=True)
