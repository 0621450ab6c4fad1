"""The NeuronConfig keys of `EndpointConfig`'s fields, for the translators. Each key is declared on its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from handler.config.field_metadata import KeyWriter, NxdKey
from handler.config.fields import fields


@lru_cache(maxsize=1)
def _nxd_keys() -> Mapping[str, NxdKey]:
    """Field -> its key of NxD Inference."""
    declared = ((name, field.metadata.nxd) for name, field in fields().items())
    return {name: replace(key, name=key.name or name) for name, key in declared if key is not None}


def nxd_key(field: str) -> str:
    """The key of NxD Inference's NeuronConfig that holds the field's value."""
    return _nxd_keys()[field].name


@lru_cache(maxsize=1)
def copied_keys() -> Mapping[str, str]:
    """Key -> field, where the plan copies the field's value into `override_neuron_config`."""
    return _written_by(KeyWriter.PLAN)


@lru_cache(maxsize=1)
def argument_keys() -> Mapping[str, str]:
    """Key -> field, where the NxDI plugin fills the key from the engine argument that has the field's name."""
    return _written_by(KeyWriter.PLUGIN)


@lru_cache(maxsize=1)
def competing_keys() -> Mapping[str, str]:
    """Key -> field, where a raw key is the same setting as a field of another name."""
    return {key.name: field for field, key in _nxd_keys().items() if key.competes}


@lru_cache(maxsize=1)
def saved_keys() -> tuple[tuple[str, str], ...]:
    """Key and field of what is read from the `neuron_config.json` of compiled artifacts. A field's first key counts."""
    return tuple((name, field) for field, key in _nxd_keys().items() for name in key.saved)


@lru_cache(maxsize=1)
def field_of_key() -> Mapping[str, str]:
    """Key of NxD Inference's NeuronConfig -> the field that its value is, or follows from."""
    named = {key.name: field for field, key in _nxd_keys().items()}
    return named | {key: name for name, field in fields().items() for key in field.metadata.nxd_derived}


@lru_cache(maxsize=1)
def field_of_native_key() -> Mapping[str, str]:
    """Key of the native plugin's `neuron_config` -> the field that its value is."""
    return {field.metadata.native: name for name, field in fields().items() if field.metadata.native is not None}


def native_key(field: str) -> str:
    """The key of the native plugin's `neuron_config` that holds the field's value."""
    key = fields()[field].metadata.native
    assert key is not None, f"{field} has no key in the native plugin's configuration"
    return key


def _written_by(writer: KeyWriter) -> Mapping[str, str]:
    return {key.name: field for field, key in _nxd_keys().items() if key.writer is writer}
