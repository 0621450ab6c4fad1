"""What `EndpointConfig` declares about a field beside its type: documentation, limits, and its NeuronConfig keys.

Everything that reads, documents or translates a field takes it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

METADATA = "endpoint_config"
T = TypeVar("T")


class KeyWriter(Enum):
    """What writes a field's value into NxD Inference's NeuronConfig."""

    PLAN = auto()  # The plan copies the value into `override_neuron_config`.
    PLUGIN = auto()  # The NxDI plugin fills the key from the engine argument that has the field's name.
    LINE = auto()  # The code of a line decides.


class ModelFile(Enum):
    """What a file beside the model (`endpoint.yaml`, `serving.properties`) may set a field to.

    Whoever made the model wrote that file. It describes the model, and decides nothing else.
    """

    DATA = auto()  # Any value: the field describes the model. Values nested in it may name no place outside.
    INSIDE = auto()  # The field is a place: only one inside the model's directory.
    NEVER = auto()  # Trust, code, credentials, ports, stores, logging, limits: only the owner of the endpoint sets it.


@dataclass(frozen=True, slots=True)
class NxdKey:
    """The NeuronConfig key of NxD Inference that holds a field's value (NxDI models/config.py).

    :param name: empty: the field's own name.
    :param competes: the raw key and the field are one setting: the stronger source wins, whichever of the two it gives.
    :param saved_as: the keys that hold the value in the `neuron_config.json` of compiled artifacts. The first that is
        there counts. Empty: the field is not read from there. None: the key itself.
    """

    name: str
    writer: KeyWriter = KeyWriter.LINE
    competes: bool = False
    saved_as: tuple[str, ...] | None = None

    @property
    def saved(self) -> tuple[str, ...]:
        return (self.name,) if self.saved_as is None else self.saved_as


# A key of the field's own name into which the plan copies the value.
COPIED = NxdKey("", KeyWriter.PLAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMetadata:
    """One field's metadata.

    :param text: the field's documentation.
    :param model_file: what a file beside the model may set the field to. Every field has to say it.
    :param model_file_keys: of a mapping, the keys that such a file may set, separated by spaces; empty: any.
    :param secret: the value is never shown.
    :param bounds: the smallest and the largest number; None: the kind's own.
    :param choices: the values that are taken; empty: any of the type.
    :param aliases: other spellings of a value -> the value.
    :param undecided: the word that leaves the decision to the line or the instance.
    :param merged: a mapping that several sources fill together, key by key.
    :param server_argument: an argument of vLLM's HTTP server, handed to its serving classes.
    :param by_user: False: the loader fills it in, and it is not a setting.
    :param nxd: the NeuronConfig key that holds the value.
    :param nxd_derived: NeuronConfig keys whose values follow from this field.
    :param native: the key of the native plugin's `neuron_config` that holds the value.
    """

    text: str
    model_file: ModelFile
    model_file_keys: str = ""
    secret: bool = False
    bounds: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    undecided: str | None = None
    merged: bool = False
    server_argument: bool = False
    by_user: bool = True
    nxd: NxdKey | None = None
    nxd_derived: tuple[str, ...] = ()
    native: str | None = None


def model_data(default: T, text: str, **limits: Any) -> T:
    """The field of `EndpointConfig` with this default, documentation and limits. Files beside the model may set it.

    :param limits: the other parameters of `FieldMetadata`.
    """
    return _field(default, FieldMetadata(text=text, model_file=ModelFile.DATA, **limits))


def model_place(default: T, text: str, **limits: Any) -> T:
    """A field that names a place. Files beside the model may set it to one inside the model's directory."""
    return _field(default, FieldMetadata(text=text, model_file=ModelFile.INSIDE, **limits))


def owners(default: T, text: str, **limits: Any) -> T:
    """A field that only the owner of the endpoint sets."""
    return _field(default, FieldMetadata(text=text, model_file=ModelFile.NEVER, **limits))


def _field(default: T, metadata: FieldMetadata) -> T:
    documented = {METADATA: metadata}
    if isinstance(default, dict):
        return field(default_factory=lambda: copy(default), repr=metadata.by_user, metadata=documented)
    return field(default=default, repr=metadata.by_user, metadata=documented)
