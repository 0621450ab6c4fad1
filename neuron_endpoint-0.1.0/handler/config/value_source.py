"""The source of a configuration value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Origin(IntEnum):
    """The kinds of source, strongest first. The command line beats a variable; a variable beats everything else."""

    ARGUMENT = -1
    ENVIRONMENT = 0
    DOCUMENT = 1
    MODEL_FILE = 2
    ARTIFACTS = 3
    DEFAULT = 4


@dataclass(frozen=True, slots=True)
class ValueSource:
    """One value's source.

    :param name: the variable (`SM_VLLM_MAX_NUM_SEQS`), the key in a document (`max_num_seqs`), or "" for a default.
        Keys inside a value are appended as the user spelled them:
        `SM_VLLM_ADDITIONAL_CONFIG.override-neuron-config.async_mode`.
    :param where: the document or file, if it is one: `s3://bucket/endpoint.yaml`.
    """

    origin: Origin
    name: str = ""
    where: str = ""

    def __str__(self) -> str:
        if self.origin is Origin.DEFAULT:
            return "default"
        return f"{self.name} in {self.where}" if self.where else self.name


@dataclass(frozen=True, slots=True)
class Overridden:
    """A value that was not used because a stronger source gave another one."""

    value: object
    source: ValueSource


DEFAULT = ValueSource(Origin.DEFAULT)
