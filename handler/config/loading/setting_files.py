"""Reads the files that hold settings: the named document, the files beside the model, and the artifacts' own file.

Each function yields settings and errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from handler.config.assignment import Assignment, assign, sourced
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi
from handler.config.dialects import vllm_names as engine
from handler.config.fields import fields, saved_keys
from handler.config.loading import document_text as document
from handler.config.loading import model_file_rules as rules
from handler.config.loading.file_reader import Fetch, Unreadable
from handler.config.loading.line_formats import parse_properties
from handler.config.problems import BadValue, unknown
from handler.config.secret_values import location_shown
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError
from handler.json_value import Json
from handler.regular_files import leads_out

Setting = Assignment | SettingError
MODEL_FILE, LMI_FILE, ARTIFACTS_FILE = "endpoint.yaml", "serving.properties", "neuron_config.json"


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
        yield SettingError(ours.CONFIG, f"{location_shown(location)}: {problem}", fix)
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
            if directory.startswith("s3://"):
                yield SettingError("the model", str(problem), "Nothing of it could be read.")
                return  # the next file would fail in the same way
            yield SettingError(location, str(problem), "Make it readable, or remove it.")
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
    file = f"{location.rstrip('/')}/{ARTIFACTS_FILE}"
    try:
        body = fetch(file)
        if body is not None:
            yield from _artifact_settings(document.parse(body, file), file)
    except Unreadable as problem:
        yield SettingError("the compiled artifacts", f"{file}: {problem}", "Their settings could not be read.")
    except BadValue as bad:
        yield bad.named(file)


def _artifact_settings(saved: Mapping[str, Json], where: str) -> Iterator[Assignment | SettingError]:
    """The settings in the artifacts' own file, as far as they have a field.

    NxD Inference saves `{"neuron_config": {...}, ...model...}` (models/config.py, InferenceConfig.save); optimum-neuron
    saves a flat object. Null values and keys without a field are ignored, because artifacts are loaded unchanged.
    """
    inner = saved.get("neuron_config")
    config = inner if isinstance(inner, dict) else saved
    done: set[str] = set()
    for key, field, value in _saved_values(config):
        if field in done or value is None or value == [] or (value == 0 and fields()[field].kind == "int"):
            continue
        done.add(field)
        try:
            yield replace(assign(field, value, key), source=ValueSource(Origin.ARTIFACTS, key, where))
        except SettingError as error:
            fix = "Compile again: neither NxD Inference nor optimum-neuron writes such a file."
            yield SettingError(f"{error.setting} in {where}", error.problem, fix)


def _saved_values(config: Mapping[str, Json]) -> Iterator[tuple[str, str, Json]]:
    for key, field in saved_keys():
        if key in config:
            yield key, field, config[key]
    if config.get("quantized") is True:
        yield "quantization_dtype", "quantization", config.get("quantization_dtype") or "int8"
    if config.get("enable_fused_speculation") is True:  # NxDI writes every key: false means that the feature is off
        yield "enable_fused_speculation", "fused_speculation", True
    if config.get("is_block_kv_layout") is True:
        yield "pa_block_size", "block_size", config.get("pa_block_size")
    if "on_device_sampling_config" in config:
        sampling = config["on_device_sampling_config"]
        yield "on_device_sampling_config", "on_device_sampling", sampling is not None
        if isinstance(sampling, dict):
            yield "on_device_sampling_config.global_topk", "global_topk", sampling.get("global_topk")


def _parsed(body: bytes, name: str, setting: str, origin: Origin) -> Iterator[Setting]:
    try:
        if name.endswith(".properties"):
            properties = parse_properties(body.decode("utf-8-sig"))
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
        return engine.translate_argument(name, value, key)
    raise unknown(key, name, {*fields(), ours.MEGABYTES, *engine.names()}, "", "a setting of this endpoint")


def is_location(location: str) -> bool:
    """Whether the location is a directory or an s3:// prefix, not a hub id."""
    try:
        return location.startswith(("s3://", "/", "./", "../")) or Path(location).is_dir()
    except (OSError, ValueError):  # not a valid file name
        return False
