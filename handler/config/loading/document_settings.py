"""Translates the keys of a document: our field names and vLLM's argument names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handler.config.assignment import Assignment, SourcedAssignment
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown
from handler.config.fields import fields
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError
from handler.json_value import Json


def of_document(document: Mapping[str, Json], origin: Origin, where: str) -> Iterator[SourcedAssignment | SettingError]:
    """Yields every setting, or its error, in the order of the document.

    :param where: the document's path or URI, for sources and messages.
    """
    for key, value in document.items():
        try:
            for found in translate(key, value):
                yield SourcedAssignment(found, ValueSource(origin, f"{key}.{found.via}" if found.via else key, where))
        except SettingError as error:
            yield SettingError(f"{error.setting} in {where}", error.problem, error.fix)


def of_properties(
    properties: Mapping[str, str], origin: Origin, where: str
) -> Iterator[SourcedAssignment | SettingError]:
    """Yields the settings of LMI's serving.properties, or their errors."""
    for key, value in properties.items():
        if not value:
            continue
        try:
            for found in lmi.translate_key(key, value):
                yield SourcedAssignment(found, ValueSource(origin, f"{key}.{found.via}" if found.via else key, where))
        except SettingError as error:
            yield SettingError(f"{error.setting} in {where}", error.problem, error.fix)


def translate(key: str, value: Json) -> list[Assignment]:
    """Translates one key of a document.

    :raises SettingError: the key is unknown, or the value does not fit.
    """
    name = engine.canonical(key)
    if ours.is_known(name):
        return ours.field_value(name, value, key)
    if engine.is_known(name):
        return engine.translate(name, value, key)
    raise unknown(key, name, {*fields(), ours.MEGABYTES, *engine.names()}, "", "a setting of this endpoint")
