"""Reads the files that hold settings: the named document, the files beside the model, and the artifacts' own file.

Each function yields settings and errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from handler.config.assignment import Assignment, sourced
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown
from handler.config.fields import fields
from handler.config.loading import artifact_settings as artifacts
from handler.config.loading import document_text as document
from handler.config.loading import java_properties
from handler.config.loading import model_file_rules as rules
from handler.config.loading.file_reader import Fetch, Unreadable
from handler.config.problems import BadValue
from handler.config.value_source import Origin
from handler.errors import SettingError
from handler.json_value import Json
from handler.regular_files import leads_out

Setting = Assignment | SettingError
MODEL_FILE, LMI_FILE = "endpoint.yaml", "serving.properties"


def of_named_document(location: str, fetch: Fetch) -> Iterator[Setting]:
    """The settings of the document that ENDPOINT_CONFIG names: a path, an s3:// URI, or inline JSON."""
    if not location:
        return
    if location.startswith("{"):
        yield from _parsed(location.encode(errors="surrogateescape"), ours.CONFIG, ours.CONFIG, Origin.DOCUMENT)
        return
    try:
        body = fetch(location)
        if body is None:
            raise Unreadable("there is no such file")
    except Unreadable as problem:
        fix = "Give a path, s3://bucket/key, or the settings as inline JSON."
        yield SettingError(ours.CONFIG, f"{location[:200]}: {problem}", fix)
        return
    yield from _parsed(body, location, f"{ours.CONFIG} ({location[:200]})", Origin.DOCUMENT)


def of_model_directory(model: str, default: str, fetch: Fetch) -> Iterator[Setting]:
    """The settings of the files beside the model. For a hub id: in the directory where SageMaker would put a model."""
    directory = model if is_location(model) else default
    for name in (MODEL_FILE, LMI_FILE):
        location = f"{directory.rstrip('/')}/{name}"
        try:
            if not directory.startswith("s3://") and leads_out(Path(location), Path(directory)):
                raise Unreadable("it is a link that leads out of the model's directory")
            body = fetch(location)
        except Unreadable as problem:
            yield SettingError(location, str(problem), "Make it readable, or remove it.")
            if directory.startswith("s3://"):
                return  # the next file would fail in the same way
            continue
        for setting in () if body is None else _parsed(body, location, location, Origin.MODEL_FILE):
            has_model = partial(_has_model, directory, fetch)
            yield (isinstance(setting, Assignment) and rules.rejected(setting, directory, has_model)) or setting


def _has_model(directory: str, fetch: Fetch) -> bool:
    try:
        return any(fetch(f"{directory.rstrip('/')}/{name}") is not None for name in ("config.json", "params.json"))
    except Unreadable:
        return True


def of_artifacts(location: str | None, fetch: Fetch) -> Iterator[Setting]:
    """The settings that the named artifacts were compiled with."""
    if not location or not is_location(location):
        return
    file = f"{location.rstrip('/')}/{artifacts.FILE}"
    try:
        body = fetch(file)
        if body is not None:
            yield from artifacts.of_artifacts(document.parse(body, file), file)
    except Unreadable as problem:
        yield SettingError(file, str(problem), "Make it readable.")
    except BadValue as bad:
        yield bad.named(file)


def _parsed(body: bytes, name: str, setting: str, origin: Origin) -> Iterator[Setting]:
    try:
        if name.endswith(".properties"):
            properties = java_properties.parse(body.decode("utf-8-sig"))
            filled = {key: value for key, value in properties.items() if value}
            yield from sourced(filled, lmi.translate_key, origin, name)
        else:
            yield from sourced(document.parse(body, name), _document_key, origin, name)
    except UnicodeDecodeError:
        yield SettingError(setting, "it is not UTF-8", "Write it in UTF-8.")
    except BadValue as bad:
        yield bad.named(setting)


def _document_key(key: str, value: Json) -> list[Assignment]:
    """Translates one key of a document: our field's name, or vLLM's argument name.

    :raises SettingError: the key is unknown, or the value does not fit.
    """
    name = engine.canonical(key)
    if ours.is_known(name):
        return ours.field_value(name, value, key)
    if engine.is_known(name):
        return engine.translate(name, value, key)
    raise unknown(key, name, {*fields(), ours.MEGABYTES, *engine.names()}, "", "a setting of this endpoint")


def is_location(location: str) -> bool:
    """Whether the location is a directory or an s3:// prefix, not a hub id."""
    try:
        return location.startswith(("s3://", "/", "./", "../")) or Path(location).is_dir()
    except (OSError, ValueError):  # not a valid file name
        return False
