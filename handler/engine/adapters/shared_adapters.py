"""Shares the LoRA adapters of one engine between processes: the owner publishes a list, the others read it.

A process that uses an adapter holds a lock (flock) on a file with the adapter's name. The owner frees an adapter when
no process holds its lock. A lock ends with its process.
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
    """One published adapter.

    :param name: the name that clients use.
    :param engine_name: the name that vLLM uses.
    """

    name: str
    source: str
    pinned: bool
    identity: int
    path: str
    engine_name: str


class Listing(msgspec.Struct, frozen=True):
    """All loaded adapters.

    :param nothing: the adapter of zeros, which requests without an adapter use, if there is one.
    :param required: whether every request must name an adapter.
    """

    adapters: list[Entry]
    nothing: Entry | None = None
    required: bool = False


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_LISTINGS = msgspec.json.Decoder(Listing)


class AdapterNotes:
    """The files through which the processes share the adapters.

    :param changes: reads the number of the latest change, which all processes see at once.
    :param changed: sets it.
    """

    def __init__(self, directory: Path, changes: Callable[[], int], changed: Callable[[int], None]) -> None:
        self._directory = directory
        self.changes = changes
        self._changed = changed

    @property
    def _file(self) -> Path:
        return self._directory / "adapters.json"

    def write(self, adapters: list[Adapter], nothing: Adapter | None, required: bool = False) -> None:
        """Publishes the list of adapters. Called by the owner. Every request that begins later uses this list."""
        part = self._file.with_suffix(".part")
        empty = None if nothing is None else _entry(nothing)
        listing = Listing([_entry(adapter) for adapter in adapters], empty, required)
        part.write_bytes(msgspec.json.encode(listing))
        part.rename(self._file)
        self._changed(self.changes() + 1)

    def read(self) -> Listing:
        return _LISTINGS.decode(self._file.read_bytes())

    def use(self, identity: int) -> int:
        """Locks an adapter that a request of this process uses. Returns a descriptor for `unused`."""
        descriptor = self._open(identity)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def unused(self, descriptor: int) -> None:
        os.close(descriptor)

    def in_use(self, identity: int) -> bool:
        """Whether a process uses an adapter. The owner calls it after it has removed the adapter from the list."""
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
    """The adapters of an engine that another process owns.

    :param request: makes vLLM's LoRARequest from an adapter's number, name and directory.
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

    def begin(self, name: str | None) -> Adapter | None:
        self._loaded()  # also reads which adapter requests without an adapter use
        adapter = super().begin(name)
        if adapter is None or adapter is self._empty or adapter.identity in self._used:
            return adapter
        self._used[adapter.identity] = self._notes.use(adapter.identity)
        if self._notes.changes() == self._seen:
            return adapter
        # The owner changed the list, perhaps before it could see the lock. Read the new list.
        self.end(adapter)
        return self.begin(name)

    def end(self, adapter: Adapter) -> None:
        super().end(adapter)
        if adapter is not self._empty and not adapter.running:
            self._notes.unused(self._used.pop(adapter.identity))

    def _loaded(self) -> dict[str, Adapter]:
        """Reads the list again if it has changed. Thread-safe. An adapter stays the same object while it is listed."""
        if self._notes.changes() == self._seen:
            return self._by_name
        with self._reading:
            change = self._notes.changes()
            listing = self._notes.read()
            known = {adapter.identity: adapter for adapter in self._by_name.values()}
            self._by_name = {
                entry.name: known.get(entry.identity) or self._adapter(entry) for entry in listing.adapters
            }
            self.required = listing.required
            if listing.nothing is not None and self._empty is None:
                self._empty = self._adapter(listing.nothing)
            self._seen = change
        return self._by_name

    def _adapter(self, entry: Entry) -> Adapter:
        request = self._request(entry.identity, entry.engine_name, entry.path)
        return Adapter(entry.name, entry.source, entry.pinned, entry.identity, Path(entry.path), request)


def _entry(adapter: Adapter) -> Entry:
    request = adapter.request
    return Entry(adapter.name, adapter.source, adapter.pinned, adapter.identity, request.lora_path, request.lora_name)
