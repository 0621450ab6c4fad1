"""The adapters of one engine, by name. Loading and unloading wait in the caller's thread; requests never do."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from handler.engine.adapters.adapter_checkpoint import copy_checked
from handler.engine.adapters.adapter_errors import (
    AdapterExists,
    AdapterNotFound,
    AdaptersFull,
    AdaptersUnsupported,
    InvalidAdapter,
)
from handler.engine.adapters.adapter_table import Adapter, AdapterTable
from handler.engine.adapters.empty_adapter import write_nothing
from handler.engine.adapters.shared_adapters import AdapterNotes
from handler.engine.event_loop import LoopThread
from handler.errors import InvalidField

logger = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@=+-]{0,255}", re.ASCII)
NOTHING = "nothing"
LOAD_SECONDS = 300.0
# vLLM's core may still have a step to make with an adapter whose last request has ended here (a stop string is found
# on this side): its files outlive that, or the core would end with a FileNotFoundError.
KEPT_SECONDS = 60.0
# How often it is asked whether another process still uses an adapter.
USE_SECONDS = 0.25
# Brings what a source names, and says where it is.
Bring = Callable[[str], Path]


class Adapters(AdapterTable):
    """What is loaded.

    :param llm: vLLM's engine.
    :param base_names: the model's own names, which no adapter may take.
    :param directory: where their files are kept while they are loaded.
    :param limit: adapters that may be loaded; those beyond the engine's memory are read again when they are asked for,
        and the least recently used leaves memory.
    :param notes: for other processes over the same engine.
    :param fixed: why none may be loaded after the start; empty where they may.
    """

    def __init__(
        self,
        llm: Any,
        loop: LoopThread,
        base_names: tuple[str, ...],
        directory: Path,
        limit: int,
        bring: Bring = Path,
        fixed: str = "",
        notes: AdapterNotes | None = None,
    ) -> None:
        from handler.engine.vllm_api.core import lora_adapters as lora

        found = lora.config(llm)
        assert found is not None, "made for an engine that takes adapters"
        self._api = lora
        self._llm = llm
        self._loop = loop
        super().__init__(base_names)
        self._directory = directory
        self._bring = bring
        self._slots, self._max_rank = found
        self._identities = itertools.count(1)
        self._change = threading.Lock()
        self._notes = notes
        self.limit = limit
        self.fixed = fixed
        shutil.rmtree(directory, ignore_errors=True)  # an earlier process's

    def load(self, name: str, source: str, *, pin: bool = False, replace: bool = False) -> Adapter:
        """Brings, checks and loads an adapter; the same again is no error.

        :param source: a directory or s3:// URI in PEFT's layout.
        :param replace: put it in the place of one of that name; requests that run keep the old one.
        :raises EndpointError: a name that is taken or none, files that cannot be served, or no room.
        """
        if not NAME.fullmatch(name) or ".." in name:
            raise InvalidField(
                "name", "it must begin with a letter or digit and have at most 256 of A-Z a-z 0-9 ._:/@=+-"
            )
        if self.fixed:
            raise AdaptersUnsupported(self.fixed)
        with self._change:
            old = self._by_name.get(name)
            if replace and old is None:
                raise AdapterNotFound(name)
            if old is not None and not replace and old.source == source:
                return old
            if name in self._base_names or (old is not None and not replace):
                raise AdapterExists(name)
            if old is None and len(self._by_name) >= self.limit:
                raise AdaptersFull(self.limit)
            pinned = sum(other.pinned for other in self.all() if other is not old)
            if pin and pinned + 1 >= self._slots:
                raise InvalidField("pin", f"of the engine's {self._slots} places (max_loras) one must stay free")
            adapter = self._loaded(name, source, pin)
            self._by_name[name] = adapter
            self.tell()
            if old is not None:
                self._retire(old)
            return adapter

    def tell(self) -> None:
        """Lets the other processes know what there is."""
        if self._notes is not None:
            self._notes.write(self.all(), self._nothing)

    def declare(self, name: str, source: str) -> None:
        """An adapter that the engine was started with: the Neuron plugin compiles them in, and goes by the name."""
        identity = next(self._identities)
        request = self._api.request(identity, name, source)
        self._by_name[name] = Adapter(name, source, True, identity, Path(source), request)

    def unload(self, name: str) -> None:
        """No further request gets it; those that run are finished with it.

        :raises AdapterNotFound: none of that name is loaded.
        """
        if self.fixed:
            raise AdaptersUnsupported(self.fixed)
        with self._change:
            adapter = self.get(name)
            del self._by_name[name]
            self.tell()
            self._retire(adapter)

    def load_nothing(self, model: Path) -> None:
        """Gives the bare model's requests an adapter that changes nothing, on the line that needs it."""
        identity = next(self._identities)
        path = self._directory / str(identity)
        if not write_nothing(model, path):
            logger.warning("%s has no module that adapters usually change: do not mix it with adapters here", model)
            return
        request = self._api.request(identity, NOTHING, str(path))
        self._loop.run(self._api.add(self._llm, request), LOAD_SECONDS)
        self._nothing = Adapter(NOTHING, "", False, identity, path, request)

    def end(self, adapter: Adapter) -> None:
        """A request that used it has ended. On the loop."""
        super().end(adapter)
        if adapter.leaving and not adapter.running:
            self._loop.task(self._free(adapter))

    def _loaded(self, name: str, source: str, pin: bool) -> Adapter:
        identity = next(self._identities)
        path = self._directory / str(identity)
        copy_checked(name, self._bring(source), path, self._max_rank)
        # vLLM tells cached prompts apart by the adapter's name: an updated adapter must not find those of the old.
        request = self._api.request(identity, f"{name}#{identity}", str(path))
        try:
            self._loop.run(self._api.add(self._llm, request), LOAD_SECONDS)
            if pin:
                self._loop.run(self._api.pin(self._llm, identity), LOAD_SECONDS)
        except ValueError as error:
            self._loop.run(self._api.remove(self._llm, identity), LOAD_SECONDS)
            shutil.rmtree(path, ignore_errors=True)
            raise InvalidAdapter(name, str(error)) from None
        return Adapter(name, source, pin, identity, path, request)

    def _retire(self, adapter: Adapter) -> None:
        async def retire() -> None:
            adapter.leaving = True
            if self._used_elsewhere(adapter):
                self._loop.task(self._free_later(adapter))
            elif not adapter.running:
                await self._free(adapter)

        self._loop.run(retire(), LOAD_SECONDS)

    def _used_elsewhere(self, adapter: Adapter) -> bool:
        return self._notes is not None and self._notes.in_use(adapter.identity)

    async def _free_later(self, adapter: Adapter) -> None:
        while self._used_elsewhere(adapter):
            await asyncio.sleep(USE_SECONDS)
        if not adapter.running:  # or the last of those that run here frees it
            await self._free(adapter)

    async def _free(self, adapter: Adapter) -> None:
        try:
            await self._api.remove(self._llm, adapter.identity)
        except Exception as error:
            logger.warning("vLLM could not free the adapter '%s' (%s)", adapter.name, type(error).__name__)
        self._loop.loop.call_later(KEPT_SECONDS, lambda: shutil.rmtree(adapter.path, ignore_errors=True))
