"""Reads the files of a checkpoint in a directory or under an S3 prefix: JSON files in full, others by byte range."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from handler.errors import SettingError
from handler.json_value import Json, json_object
from handler.regular_files import open_regular, regular_files
from handler.storage.retry import SMALL_FILES
from handler.storage.s3_client import list_objects, make_client
from handler.storage.s3_download import split_uri
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import EmptyRange, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

SETTING = "ENDPOINT_MODEL"
AGAIN = "Upload the original file again, or save it as UTF-8 without a byte order mark."
# The index of Llama 3.1 405B, one of the largest, has about 0.1 MB.
LARGEST_JSON = 64 * 1024 * 1024
# How the names of files with weights end that vLLM reads from a directory. A GGUF file is read by its own path only
# (vllm/model_executor/model_loader/gguf_loader.py).
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
SAFETENSORS = ".safetensors"


def holds_weights(name: str, suffixes: str | tuple[str, ...] = WEIGHT_SUFFIXES) -> bool:
    """Whether vLLM reads a file as weights. Its patterns pass over names that begin with a dot, such as the
    `._model.safetensors` that macOS puts beside a file of an archive."""
    return name.endswith(suffixes) and not name.startswith(".")


class CheckpointFiles(Protocol):
    """Read access to the files of a checkpoint."""

    where: str

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """A range of a file; fewer bytes if the file ends before."""

    def listing(self) -> dict[str, int]:
        """The files at the top level, with their sizes in bytes."""

    def below(self, folder: str) -> CheckpointFiles:
        """The files of a folder. One that does not exist has none."""


class LocalFiles:
    """The files of a checkpoint in a directory.

    :param hub: the directory is a snapshot in the hub client's cache, which may lack files.
    """

    def __init__(self, directory: Path, where: str, *, hub: bool = False) -> None:
        self.directory, self.where, self.hub = directory, where, hub

    def read(self, name: str) -> bytes | None:
        return self._read(name, 0, None)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        content = self._read(name, start, length)
        if content is None:
            raise SettingError(f"{self.where}/{name}", "it is not there", "Upload all files of one version.")
        return content

    def _read(self, name: str, start: int, length: int | None) -> bytes | None:
        path = self.directory / name
        try:
            with open_regular(path, self.directory) as file:
                if length is None:
                    _check_size(f"{self.where}/{name}", path.stat().st_size)
                file.seek(start)
                return file.read(LARGEST_JSON if length is None else length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise unreadable(path, error) from None

    def listing(self) -> dict[str, int]:
        """:raises SettingError: a file of the directory, or of those below it, must not be opened."""
        try:
            files = list(regular_files(self.directory))
            return {path.name: path.stat().st_size for path in files if path.parent == self.directory}
        except OSError as error:
            raise unreadable(Path(error.filename), error) from None

    def below(self, folder: str) -> LocalFiles:
        return LocalFiles(self.directory / folder, f"{self.where}/{folder}", hub=self.hub)


class S3Files:
    """The files of a checkpoint under an S3 prefix. botocore finds credentials, region and endpoint itself."""

    def __init__(self, uri: str, client: S3Client | None = None) -> None:
        self.where = uri.rstrip("/")
        self.bucket, self.prefix = split_uri(uri, SETTING)
        self._client = client

    def read(self, name: str) -> bytes | None:
        return self._get(name, None)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._get(name, f"bytes={start}-{start + length - 1}") or b""

    def listing(self) -> dict[str, int]:
        with translated(self.where, "s3:ListBucket"):
            listed = list_objects(self._connected(), self.bucket, self.prefix, recursive=False)
            return {item.key.removeprefix(self.prefix): item.size for item in listed}

    def below(self, folder: str) -> S3Files:
        return S3Files(f"{self.where}/{folder}", self._client)

    def _get(self, name: str, range_: str | None) -> bytes | None:
        where = f"{self.where}/{name}"
        arguments: dict[str, Any] = {"Range": range_} if range_ else {}
        try:
            with translated(where, "s3:GetObject"):
                reply = self._connected().get_object(Bucket=self.bucket, Key=self.prefix + name, **arguments)
                # Entering the body itself gives the raw stream, which accepts short bodies.
                with closing(reply["Body"]) as body:
                    if range_ is None:
                        _check_size(where, reply["ContentLength"])
                    # `rclone serve s3` answers a range with 200, and declares it.
                    elif reply["ResponseMetadata"]["HTTPStatusCode"] != 206 and "ContentRange" not in reply:
                        raise StoreUnavailable(where, "the server does not serve ranges")
                    return bytes(body.read())
        except (NotFound, EmptyRange):
            return None

    def _connected(self) -> S3Client:
        if self._client is None:
            self._client = make_client(SMALL_FILES)
        return self._client


def read_json(files: CheckpointFiles, name: str) -> dict[str, Json] | None:
    """The JSON object in a file of a checkpoint; None if there is no such file.

    transformers reads UTF-8 only, and no byte order mark, as some editors on Windows write one.

    :raises SettingError: the file does not hold a JSON object in UTF-8.
    """
    content = files.read(name)
    if content is None:
        return None
    try:
        value = json_object(content.decode())
    except UnicodeDecodeError:
        value = None
    if value is None:
        raise SettingError(SETTING, f"{files.where}/{name} is not a JSON object in plain UTF-8", AGAIN)
    return value


def unreadable(path: Path, error: OSError) -> SettingError:
    return SettingError(SETTING, f"{path} cannot be read ({error.strerror})", "Put a plain, readable file there.")


def _check_size(where: str, size: int) -> None:
    if size > LARGEST_JSON:
        problem = f"{where} has {size:,} bytes, too many for a JSON file of a model"
        raise SettingError(SETTING, problem, "Upload the original file again.")
