"""Modules that vLLM imports at its start and that few requests need. They are imported at their first use instead."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

# vllm/multimodal/audio.py (0.16.0) needs it to resample audio. It takes 57 MB in each process, and 0.5 s.
RARELY_USED = ("scipy.signal",)


class DeferredModule(ModuleType):
    """Stands in `sys.modules` for a module until one of its attributes is asked for.

    `importlib.util.LazyLoader` does not do here: an import statement asks for `__spec__`, and so loads the module.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__path__":  # `inspect` asks every module for its __file__
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer(names: tuple[str, ...] = RARELY_USED) -> None:
    """Defers the import of each module that is installed and not yet imported. Imports nothing."""
    for name in names:
        if name not in sys.modules and (spec := _spec(name)):
            sys.modules[name] = module = DeferredModule(name)
            module.__spec__ = spec


def _spec(name: str) -> ModuleSpec | None:
    """The spec of a package's module. `find_spec` alone would import the package: 40 ms for scipy, with numpy."""
    package = find_spec(name.rpartition(".")[0])
    return package and PathFinder.find_spec(name, package.submodule_search_locations)
