"""Stands for the packages that NxD Inference imports and that have no public sources, or that no configuration needs.

A module of theirs has any attribute, and an attribute can be called, indexed and inherited from. So the public
sources can be imported, and their configuration classes run. Nothing that computes is meant to.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

CLOSED = frozenset(
    {
        *("torch_xla", "torch_neuronx", "libneuronxla", "neuronxcc", "nki", "nkilib", "neuronxlogger"),
        *("tenacity", "torchvision", "diffusers", "pytorch_lightning"),
    }
)
PLATFORM = "trn2"


class Anything:
    """An object of a closed package. As a decorator it leaves a function as it is; as a base class it adds nothing."""

    __name__ = "anything"  # torch.fx asks a function for it

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        decorates = len(arguments) == 1 and callable(arguments[0]) and not named
        return arguments[0] if decorates else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key: Any) -> Any:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, other: Any) -> Any:
        return Anything()

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class _ClosedModule(types.ModuleType):
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class ClosedPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of packages that are not installed."""

    def __init__(self, names: frozenset[str] = CLOSED) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        closed = fullname.partition(".")[0] in self._names
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if closed else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _ClosedModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__version__ = "2.0"
        module.get_platform_target = lambda *flags: PLATFORM  # type: ignore[attr-defined]


def stand_in_for_closed_packages() -> None:
    """For this process, where they are not installed."""
    import torch

    if not any(isinstance(finder, ClosedPackages) for finder in sys.meta_path):
        sys.meta_path.append(ClosedPackages())
        torch.classes.neuron = Anything()  # type: ignore[attr-defined]
