"""Translates `ENDPOINT_<FIELD>` variables, and the same names as keys of a document."""

from __future__ import annotations

from handler.config.assignment import Assignment, assign, converted, unused
from handler.config.dialects import neuron_variables as neuron
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.container_variables import one_process
from handler.config.endpoint_config import MIB
from handler.config.fields import fields
from handler.config.problems import unknown
from handler.config.values import clean, to_int, to_mapping, to_str
from handler.errors import SettingError
from handler.json_value import Json

PREFIX = "ENDPOINT_"
# Names the document. Read before everything else.
CONFIG = "ENDPOINT_CONFIG"
MEGABYTES = "max_body_mb"
# A setting of earlier versions.
FRONT_ENDS = "front_ends"
# Variables of SageMaker's own tools that begin with the prefix. JumpStart's model definitions set the time limit of
# AWS's model servers (sagemaker-python-sdk, jumpstart_specs).
OF_SAGEMAKER = {"ENDPOINT_SERVER_TIMEOUT": "SageMaker's own limits bound a request"}


def reads(name: str) -> bool:
    return name.startswith(PREFIX)


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: there is no such field, or the value does not fit."""
    if name in OF_SAGEMAKER:
        return [unused(name, OF_SAGEMAKER[name])]
    field = name.removeprefix(PREFIX).lower()
    if not is_known(field):
        known = [*(other.upper() for other in fields()), "CONFIG", MEGABYTES.upper()]
        raise unknown(name, name.removeprefix(PREFIX), known, PREFIX, "a setting of this endpoint")
    return field_value(field, value, name)


def is_known(field: str) -> bool:
    return field in fields() or field in (MEGABYTES, FRONT_ENDS)


def field_value(field: str, value: Json, setting: str) -> list[Assignment]:
    """Translates a field's value from text or a document. Fields that hold other settings are translated key by key.

    :raises SettingError: the value does not fit. The error names the setting, or the key in it.
    """
    if field == MEGABYTES:
        return [assign("max_body", converted(to_int, value, setting) * MIB, setting)]
    if field == FRONT_ENDS:
        return [] if value is None else one_process(setting, value)
    if field == "lora_modules":
        return engine.translate_argument(field, value, setting)
    if field not in {"engine_args", "neuron_config", "neuron_env"}:
        return [assign(field, value, setting)]
    inner = converted(to_mapping, {} if value is None else value, setting)
    if field == "neuron_config":
        return engine.raw_neuron_config(inner, setting)
    translate_key = _engine_key if field == "engine_args" else _environment_key
    return [assignment for key, item in inner.items() for assignment in translate_key(key, item, f"{setting}.{key}")]


def _engine_key(key: str, value: Json, setting: str) -> list[Assignment]:
    return [_within(assignment, key) for assignment in engine.translate_argument(key, value, setting)]


def _environment_key(key: str, value: Json, setting: str) -> list[Assignment]:
    """Translates a variable that a document gives, as if it were set in the environment."""
    text = converted(to_str, value, setting) if value != "" else ""
    if not converted(clean, key, setting).isidentifier():
        raise SettingError(setting, "is not a valid name of a variable", "Use letters, digits and underscores.")
    try:
        return [_within(assignment, key) for assignment in neuron.translate(key, text)]
    except SettingError as error:
        raise SettingError(setting, error.problem, error.fix) from None


def _within(assignment: Assignment, key: str) -> Assignment:
    via = f"{key}.{assignment.via}" if assignment.via else key
    return Assignment(assignment.field, assignment.value, key=assignment.key, part=assignment.part, via=via)
