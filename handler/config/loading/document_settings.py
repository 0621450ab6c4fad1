"""Translates the keys of a document: our field names and vLLM's argument names."""

from __future__ import annotations

from handler.config.assignment import Assignment
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown
from handler.config.fields import fields
from handler.json_value import Json


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
