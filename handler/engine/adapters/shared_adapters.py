"""One engine's adapters in several processes: the owner loads them and writes down which there are, the others read.

A process that uses an adapter holds a lock on a file of its name (flock): the owner frees it when nobody does. The
lock goes with the process.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from handler.engine.adapters.adapter_table import Adapter, AdapterTable


class Entry(msgspec.Struct, frozen=True):
    """:param name: as clients know it; `engine_name`: as vLLM does."""

    name: str
    source: str
    pinned: bool
    identity: int
    path: str
    engine_name: str


class Listing(msgspec.Struct, frozen=True):
    """Whatever is loaded. `nothing` is what the bare model's requests bring, where they bring any."""

    adapters: list[Entry]
    nothing: Entry | None = None


class AdapterNotes:
    """The files between the processes.

    :param change: reads or sets the number of the latest change, which all processes see at once.
    """

    def __init__(self, directory: Path, changes: Callable[[], int], changed: Callable[[int], None]) -> None:
        self._directory = directory
        self.changes = changes
        self._changed = changed

    @property
    def _file(self) -> Path:
        return self._directory / "adapters.json"

    def write(self, adapters: list[Adapter], nothing: Adapter | None) -> None:
        """By the owner. Whoever begins a request from now on goes by it."""
        part = self._file.with_suffix(".part")
        listing = Listing([_entry(adapter) for adapter in adapters], None if nothing is None else _entry(nothing))
        part.write_bytes(msgspec.json.encode(listing))
        part.rename(self._file)
        self._changed(self.changes() + 1)

    def read(self) -> Listing:
        return msgspec.json.decode(self._file.read_bytes(), type=Listing)

    def use(self, identity: int) -> int:
        """Says that a request of this process uses it; returns what `unused` takes."""
        descriptor = self._open(identity)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def unused(self, descriptor: int) -> None:
        os.close(descriptor)

    def in_use(self, identity: int) -> bool:
        """Asked by the owner, after a change that keeps new requests from it."""
        descriptor = self._open(identity)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _open(self, identity: int) -> int:
        return os.open(self._directory / f"adapter-{identity}.use", os.O_CREAT | os.O_RDWR, 0o600)


class FollowedAdapters(AdapterTable):
    """Those of an engine that another process owns.

    :param request: makes what vLLM is given with a request, of an adapter's number, its name and its directory.
    """

    def __init__(
        self, base_names: tuple[str, ...], notes: AdapterNotes, request: Callable[[int, str, str], Any]
    ) -> None:
        super().__init__(base_names)
        self._request = request
        self._notes = notes
        self._seen = 0
        self._reading = threading.Lock()
        self._used: dict[int, int] = {}

    def names(self) -> tuple[str, ...]:
        self._follow()
        return super().names()

    def all(self) -> list[Adapter]:
        self._follow()
        return super().all()

    def get(self, name: str) -> Adapter:
        self._follow()
        return super().get(name)

    def begin(self, name: str | None) -> Adapter | None:
        self._follow()
        adapter = super().begin(name)
        if adapter is None or adapter is self._nothing or adapter.identity in self._used:
            return adapter
        self._used[adapter.identity] = self._notes.use(adapter.identity)
        if self._notes.changes() == self._seen:
            return adapter
        # The owner has changed something before it could see that this one is used: what is true now?
        self.end(adapter)
        return self.begin(name)

    def end(self, adapter: Adapter) -> None:
        super().end(adapter)
        if adapter is not self._nothing and not adapter.running:
            self._notes.unused(self._used.pop(adapter.identity))

    def _follow(self) -> None:
        """In any thread; an adapter stays one object for as long as it is listed."""
        if self._notes.changes() == self._seen:
            return
        with self._reading:
            change = self._notes.changes()
            listing = self._notes.read()
            known = {adapter.identity: adapter for adapter in self._by_name.values()}
            self._by_name = {entry.name: known.get(entry.identity) or self._made(entry) for entry in listing.adapters}
            if listing.nothing is not None and self._nothing is None:
                self._nothing = self._made(listing.nothing)
            self._seen = change

    def _made(self, entry: Entry) -> Adapter:
        request = self._request(entry.identity, entry.engine_name, entry.path)
        return Adapter(entry.name, entry.source, entry.pinned, entry.identity, Path(entry.path), request)


def _entry(adapter: Adapter) -> Entry:
    request = adapter.request
    return Entry(adapter.name, adapter.source, adapter.pinned, adapter.identity, request.lora_path, request.lora_name)
