"""One variable of the environment in, assignments out: finds the dialect that the variable belongs to."""

from __future__ import annotations

from typing import Protocol

from handler.config.assignment import Assignment, assign, converted
from handler.config.dialects import container_variables as containers
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi
from handler.config.dialects import neuron_variables as neuron
from handler.config.dialects import server_arguments as servers
from handler.config.values import clean


class Dialect(Protocol):
    """A module of `handler.config.dialects` that translates variables."""

    def reads(self, name: str) -> bool: ...

    def translate(self, name: str, value: str) -> list[Assignment]: ...


DIALECTS: tuple[Dialect, ...] = (ours, servers, lmi, containers, neuron)


def translate_model(name: str, value: str) -> list[Assignment]:
    return [assign("model", converted(clean, value, name), name)]


def translate_variable(name: str, value: str) -> list[Assignment]:
    """An empty value counts as not set: deployment templates leave variables empty. For optimum-neuron it is a flag."""
    for dialect in DIALECTS:
        if dialect.reads(name):
            if not value.strip() and not name.startswith(servers.OPTIMUM_PREFIX):
                return []
            return dialect.translate(name, converted(clean, value, name))
    containers.reject_misspelling(name)
    if "NEURON" in name or name.startswith(("BASE_", "UNSAFE_")):
        neuron.reject_misspelling(name)
    return []
