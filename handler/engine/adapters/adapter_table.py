"""What adapters there are, by name, and which requests use them: what a request needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handler.engine.adapters.adapter_errors import AdapterNotFound


@dataclass(slots=True)
class Adapter:
    """One loaded adapter.

    :ivar request: what vLLM is given with each request that wants it.
    :ivar running: requests that use it now; read and written on the engine's loop.
    :ivar leaving: unloaded by name; its memory is freed when the last request that uses it has ended.
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
    """:param base_names: the model's own names, which no adapter has."""

    def __init__(self, base_names: tuple[str, ...]) -> None:
        self._base_names = base_names
        self._by_name: dict[str, Adapter] = {}
        self._nothing: Adapter | None = None

    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def all(self) -> list[Adapter]:
        return list(self._by_name.values())

    def get(self, name: str) -> Adapter:
        """:raises AdapterNotFound: none of that name is loaded."""
        found = self._by_name.get(name)
        if found is None:
            raise AdapterNotFound(name)
        return found

    def begin(self, name: str | None) -> Adapter | None:
        """A request that uses it begins. On the loop.

        :param name: as the client gave it; None, "" and the model's own names ask for the bare model.
        :raises AdapterNotFound: it was unloaded since the request was read.
        """
        if not name or name in self._base_names:
            return self._nothing
        adapter = self.get(name)
        adapter.running += 1
        return adapter

    def end(self, adapter: Adapter) -> None:
        """A request that used it has ended. On the loop."""
        if adapter is not self._nothing:
            adapter.running -= 1
