"""The fields of `EndpointConfig` as data, and the conversion of a value to a field's type, and NeuronConfig keys.

A field that is added to the dataclass automatically has an `ENDPOINT_<FIELD>` variable, a key in documents and a row
in `config explain`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.field_metadata import METADATA, FieldMetadata, KeyWriter, NxdKey
from handler.config.problems import BadValue
from handler.config.values import (
    IN_QUOTES,
    clean,
    shown,
    to_bool,
    to_float,
    to_int,
    to_key_place,
    to_list,
    to_mapping,
    to_port_range,
    to_str,
)
from handler.json_value import Json

INT_BOUNDS = (1, 2**31 - 1)

KINDS: Mapping[str, Callable[[Json], object]] = {
    "str": to_str,
    "bool": to_bool,
    "int": to_int,
    "float": to_float,
    "Path": lambda value: Path(to_str(value)),
    "tuple[str, ...]": lambda value: to_list(value, to_str),
    "tuple[int, ...]": lambda value: to_list(value, _positive),
    "Mapping[str, str]": lambda value: {key: to_str(item) for key, item in to_mapping(value).items()},
    "Mapping[str, Json]": to_mapping,
}


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field of `EndpointConfig`.

    :param kind: a key of KINDS.
    :param metadata: the metadata that the dataclass declares.
    """

    name: str
    kind: str
    default: object
    metadata: FieldMetadata

    def convert(self, value: Json) -> object:
        """The value in the type of the field; None if the value leaves the decision to the line or the instance.

        :raises BadValue: the value is of another kind, out of range, or not one of the choices. The error never
            contains the text of a secret.
        """
        try:
            return self._convert(value)
        except BadValue as bad:
            if self.metadata.secret and isinstance(value, str) and value.strip():
                raise BadValue(f"it {IN_QUOTES}", bad.fix) from None
            if self.metadata.secret:
                raise BadValue("the value is not a text", "Give a text") from None
            raise BadValue(bad.problem, self._expected() or bad.fix) from None

    def _convert(self, value: Json) -> object:
        if value is None and self.default is None:
            return None
        if isinstance(value, str):
            value = self.metadata.aliases.get(clean(value).strip().lower(), value)
            if value == self.metadata.undecided:
                return None
        converted = KINDS[self.kind](value)
        bounds = self.bounds()
        if bounds and isinstance(converted, (int, float)) and not bounds[0] <= converted <= bounds[1]:
            raise BadValue(f"{shown(value)} is out of range", "Give another value")
        if self.name == "safe_port_range":
            to_port_range(str(converted))
        if self.name == "artifact_signing_key":
            to_key_place(str(converted))
        if self.metadata.choices and converted not in self.metadata.choices:
            raise BadValue(f"{shown(value)} is not one of its values", "Give another value")
        return converted

    def bounds(self) -> tuple[float, float] | None:
        return self.metadata.bounds or (INT_BOUNDS if self.kind == "int" else None)

    def _expected(self) -> str:
        bounds, choices = self.bounds(), self.metadata.choices
        if choices:
            return f"Give {', '.join(choices[:-1])} or {choices[-1]}"
        if bounds:
            return f"Give {'a whole number' if self.kind == 'int' else 'a number'} from {bounds[0]} to {bounds[1]}"
        return ""


@lru_cache(maxsize=1)
def fields() -> Mapping[str, ConfigField]:
    """Every field that a user can set, by name."""
    settable: dict[str, ConfigField] = {}
    for field in dataclasses.fields(EndpointConfig):
        metadata = field.metadata[METADATA]
        assert isinstance(metadata, FieldMetadata)
        if metadata.by_user:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            settable[field.name] = ConfigField(field.name, str(field.type).removesuffix(" | None"), default, metadata)
    return settable


@lru_cache(maxsize=1)
def _nxd_keys() -> Mapping[str, NxdKey]:
    """Field -> its key of NxD Inference."""
    declared = ((name, field.metadata.nxd) for name, field in fields().items())
    return {name: replace(key, name=key.name or name) for name, key in declared if key is not None}


def nxd_key(field: str) -> str:
    """The key of NxD Inference's NeuronConfig that holds the field's value."""
    return _nxd_keys()[field].name


@lru_cache(maxsize=len(KeyWriter))
def keys_written_by(writer: KeyWriter) -> Mapping[str, str]:
    """Key of NxD Inference -> field, of the keys that this writer fills."""
    return {key.name: field for field, key in _nxd_keys().items() if key.writer is writer}


@lru_cache(maxsize=1)
def named_keys() -> Mapping[str, str]:
    """Key of NxD Inference's NeuronConfig -> the field that its value is."""
    return {key.name: field for field, key in _nxd_keys().items()}


@lru_cache(maxsize=1)
def competing_keys() -> Mapping[str, str]:
    """Key -> field, where a raw key is the same setting as a field of another name."""
    return {key: field for key, field in named_keys().items() if _nxd_keys()[field].competes}


@lru_cache(maxsize=1)
def saved_keys() -> tuple[tuple[str, str], ...]:
    """Key and field of what is read from the `neuron_config.json` of compiled artifacts. A field's first key counts."""
    return tuple((name, field) for field, key in _nxd_keys().items() for name in key.saved)


@lru_cache(maxsize=1)
def field_of_key() -> Mapping[str, str]:
    """Key of NxD Inference's NeuronConfig -> the field that its value is, or follows from."""
    derived = {key: name for name, field in fields().items() for key in field.metadata.nxd_derived}
    return {**named_keys(), **derived}


@lru_cache(maxsize=1)
def field_of_native_key() -> Mapping[str, str]:
    """Key of the native plugin's `neuron_config` -> the field that its value is."""
    return {field.metadata.native: name for name, field in fields().items() if field.metadata.native is not None}


def native_key(field: str) -> str:
    """The key of the native plugin's `neuron_config` that holds the field's value."""
    key = fields()[field].metadata.native
    assert key is not None, f"{field} has no key in the native plugin's configuration"
    return key


def _positive(value: Json) -> int:
    number = to_int(value)
    if not INT_BOUNDS[0] <= number <= INT_BOUNDS[1]:
        raise BadValue(f"{shown(value)} is out of range", "Give whole numbers above 0, separated by commas")
    return number
