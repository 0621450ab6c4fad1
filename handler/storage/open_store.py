"""Opens an object store by its URI."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from handler.errors import SettingError
from handler.regular_files import exists
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectStore
from handler.storage.s3_objects import S3Objects
from handler.urls import url_parts


def open_objects(uri: str, setting: str = "ENDPOINT_ARTIFACT_STORE") -> ObjectStore:
    """Returns the object store at `s3://bucket/prefix` or `file:///directory`. Sends no request yet.

    :param setting: the setting that the URI is from, for error messages.
    :raises SettingError: the URI has another form, or names a file.
    """
    fix = "Write s3://bucket/prefix or file:///directory."
    parts = url_parts(uri)
    if parts.query or parts.fragment:
        raise SettingError(setting, f"'{uri}' contains a '?' or '#'", fix)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise SettingError(setting, f"'{uri}' names no bucket", fix)
        return S3Objects(parts.netloc, parts.path.strip("/"))
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        directory = Path(unquote(parts.path))
        nearest = next(filter(exists, (directory, *directory.parents)), directory)
        if exists(nearest) and not nearest.is_dir():
            raise SettingError(setting, f"{nearest} is not a directory", fix)
        return DirectoryObjects(directory)
    raise SettingError(setting, f"'{uri}' is neither s3:// nor file:///", fix)
