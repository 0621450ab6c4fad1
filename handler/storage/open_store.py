"""Opens the object store that a URI names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from handler.errors import SettingError
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectStore
from handler.storage.s3_objects import S3Objects


def open_objects(uri: str, setting: str = "ENDPOINT_ARTIFACT_STORE") -> ObjectStore:
    """The place that a URI names: `s3://bucket/prefix` or `file:///directory`. Nothing is asked of it yet.

    :param setting: the setting that the URI is from, for the error.
    :raises SettingError: it names neither.
    """
    fix = "Write s3://bucket/prefix or file:///directory."
    parts = urlsplit(uri)
    if parts.query or parts.fragment:
        raise SettingError(setting, f"'{uri}' has a '?' or '#' in it", fix)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise SettingError(setting, f"'{uri}' names no bucket", fix)
        return S3Objects(parts.netloc, parts.path.strip("/"))
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryObjects(Path(unquote(parts.path)))
    raise SettingError(setting, f"'{uri}' is neither s3:// nor file:///", fix)
