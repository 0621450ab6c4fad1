"""Where a value came from: the difference between a setting and a riddle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Origin(IntEnum):
    """The kinds of source, the stronger the lower: what was typed beats a variable, a variable everything else."""

    ARGUMENT = -1
    ENVIRONMENT = 0
    DOCUMENT = 1
    MODEL_FILE = 2
    ARTIFACTS = 3
    INSTANCE = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ValueSource:
    """One value's source.

    :param name: what a user would look for: the variable (`SM_VLLM_MAX_NUM_SEQS`), the key in a document
        (`max_num_seqs`), or "" for a default. Keys inside a value are appended as they were spelled:
        `SM_VLLM_ADDITIONAL_CONFIG.override-neuron-config.async_mode`.
    :param where: the document or file, for those that are one: `s3://bucket/endpoint.yaml`.
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
    """A value that a stronger source put aside."""

    value: object
    source: ValueSource


DEFAULT = ValueSource(Origin.DEFAULT)
