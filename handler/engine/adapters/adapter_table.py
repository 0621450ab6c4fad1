"""The table of loaded LoRA adapters: by name, with the number of requests that use each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handler.engine.adapters.adapter_errors import AdapterNotFound, AdapterRequired


@dataclass(slots=True)
class Adapter:
    """One loaded adapter.

    :ivar request: vLLM's LoRARequest, which is passed with each request that uses the adapter.
    :ivar running: how many requests use it now. Read and written on the engine's loop.
    :ivar leaving: it is being unloaded. Its memory is freed when the last request that uses it has ended.
    """

    name: str
    source: str
    pinned: bool
    identity: int
    path: Path
    request: Any
    running: int = 0
    leaving: bool = False


class AdapterTable:
    """The adapters by name.

    :param base_names: the model's own names. No adapter has one of them.
    :ivar required: whether the engine serves requests with an adapter only.
    """

    def __init__(self, base_names: tuple[str, ...]) -> None:
        self._base_names = base_names
        self._by_name: dict[str, Adapter] = {}
        self._empty: Adapter | None = None
        self.required = False

    def names(self) -> tuple[str, ...]:
        return tuple(self._loaded())

    def all(self) -> list[Adapter]:
        return list(self._loaded().values())

    def get(self, name: str) -> Adapter:
        """:raises AdapterNotFound: no adapter has this name."""
        found = self._loaded().get(name)
        if found is None:
            raise AdapterNotFound(name)
        return found

    def begin(self, name: str | None) -> Adapter | None:
        """Counts a new request, and returns the adapter that it must use. Call on the loop.

        :param name: the name in the request. None, "" and the model's own names mean the model without an adapter.
        :raises AdapterNotFound: the adapter was unloaded after the request was read.
        :raises AdapterRequired: the engine serves no request without an adapter.
        """
        if not name or name in self._base_names:
            if self.required:
                raise AdapterRequired(self.names())
            return self._empty
        adapter = self.get(name)
        adapter.running += 1
        return adapter

    def end(self, adapter: Adapter) -> None:
        """Call on the loop when a request that used the adapter has ended."""
        if adapter is not self._empty:
            adapter.running -= 1

    def _loaded(self) -> dict[str, Adapter]:
        return self._by_name
