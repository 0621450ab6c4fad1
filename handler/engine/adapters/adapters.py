"""The LoRA adapters of an engine. Loading and unloading block the caller's thread, but never a request."""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handler.engine.adapters import adapter_errors
from handler.engine.adapters.adapter_checkpoint import copy_checked, write_empty_adapter
from handler.engine.contract import EngineAdapter
from handler.engine.event_loop import LoopThread
from handler.errors import EngineBusy, InvalidField

logger = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@=+-]{0,255}", re.ASCII)
EMPTY = "nothing"
LOAD_SECONDS = 300.0
# How long the files of an unloaded adapter are kept. vLLM's core may still make a step with an adapter whose last
# request has ended in this process, because stop strings are found here. Without the files the core would end with a
# FileNotFoundError.
KEPT_SECONDS = 60.0
# Fetches an adapter from its source. Its directory may be gone after the `with` block.
Bring = Callable[[str], AbstractContextManager[Path]]


@dataclass(slots=True)
class Adapter:
    """One loaded adapter.

    :ivar request: vLLM's LoRARequest, which is passed with each request that uses the adapter.
    :ivar pinned: what the last request that loaded it said. vLLM never pins it: its scheduler puts `max_loras`
        adapters into a batch, and the core ends if a pin leaves fewer places in memory.
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


class Adapters:
    """The LoRA adapters of an engine, by name.

    :param base_names: the model's own names, which no adapter may have.
    :param directory: keeps the files of loaded adapters.
    :param limit: how many adapters may be loaded. The engine's memory may hold fewer. vLLM then drops the least
        recently used one from memory, and reads its files again when a request uses it.
    :ivar required: whether the engine serves requests with an adapter only.
    :ivar modules: the model's modules with the shapes of their weights, if they are known.
    :ivar fixed: why no adapter may be loaded after the start. Empty if loading is allowed.
    """

    def __init__(
        self,
        engine: EngineAdapter,
        loop: LoopThread,
        base_names: tuple[str, ...],
        directory: Path,
        limit: int,
        bring: Bring,
    ) -> None:
        assert engine.facts.adapters is not None, "the engine was started with LoRA"
        self._engine = engine
        self._loop = loop
        self._base_names = base_names
        self._by_name: dict[str, Adapter] = {}
        self._empty: Adapter | None = None
        self.required = False
        self._directory = directory
        self._bring = bring
        _, self._max_rank = engine.facts.adapters
        self._identities = itertools.count(1)
        self._changed = threading.Condition()
        self._changing: set[str] = set()
        self.limit = limit
        self.fixed = ""
        self.modules: dict[str, tuple[int, ...]] | None = None
        shutil.rmtree(directory, ignore_errors=True)  # files of an earlier process

    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def all(self) -> list[Adapter]:
        return list(self._by_name.values())

    def get(self, name: str) -> Adapter:
        """:raises AdapterNotFound: no adapter has this name."""
        adapter = self._by_name.get(name)
        if adapter is None:
            raise adapter_errors.AdapterNotFound(name)
        return adapter

    def begin(self, name: str | None) -> Adapter | None:
        """Counts a new request, and returns the adapter that it must use. Call on the loop.

        :param name: the name in the request. None, "" and the model's own names mean the model without an adapter.
        :raises AdapterNotFound: the adapter was unloaded after the request was read.
        :raises AdapterRequired: the engine serves no request without an adapter.
        """
        if not name or name in self._base_names:
            if self.required:
                raise adapter_errors.AdapterRequired(self.names())
            return self._empty
        adapter = self.get(name)
        adapter.running += 1
        return adapter

    def has(self, name: str) -> bool:
        """Whether an adapter has this name, or is being loaded with it."""
        with self._changed:
            return name in self._by_name or name in self._changing

    def load(
        self,
        name: str,
        source: str,
        *,
        pin: bool | None = None,
        replace: bool = False,
        again: bool = True,
        taken: Callable[[str], bool] = lambda name: False,
    ) -> Adapter:
        """Fetches, checks and loads an adapter.

        :param source: a directory or s3:// URI with PEFT's files.
        :param pin: only reported. None means as before.
        :param replace: replace the adapter of this name. Running requests keep the old one.
        :param again: loading the same one again is not an error.
        :param taken: whether something else has the name. Asked once nobody else can load an adapter of this name.
        :raises EndpointError: the name is invalid or in use, the files cannot be served, or there is no room.
        """
        if not NAME.fullmatch(name) or ".." in name:
            raise InvalidField(
                "name", "it must begin with a letter or digit and have at most 256 of A-Z a-z 0-9 ._:/@=+-"
            )
        if self.fixed:
            raise adapter_errors.AdaptersUnsupported(self.fixed)
        if name in self._base_names and not replace:
            raise adapter_errors.AdapterExists(name)
        with self._reserved(name, exists=replace):
            old = self._by_name.get(name)
            same = again and old is not None and old.source == source
            if taken(name) or (old is not None and not replace and not same):
                raise adapter_errors.AdapterExists(name)
            pinned = (old is not None and old.pinned) if pin is None else pin
            if old is not None and not replace:
                old.pinned = pinned
                return old
            adapter = self._load(name, source, pinned)
            self._by_name[name] = adapter
            if old is not None:
                self._retire(old)
            return adapter

    def declare(self, name: str, source: str) -> None:
        """Adds an adapter with which the engine was started. The Neuron plugin compiles such adapters in, by name."""
        identity = next(self._identities)
        request = self._engine.lora_request(identity, name, source)
        self._by_name[name] = Adapter(name, source, True, identity, Path(source), request)

    def declare_base(self, name: str, source: str | None) -> None:
        """Sets the adapter of zeros that the engine was started with. Without one, requests must name an adapter."""
        if source is None:
            self.required = True
            return
        identity = next(self._identities)
        self._empty = Adapter(
            name, "", False, identity, Path(source), self._engine.lora_request(identity, name, source)
        )

    def unload(self, name: str) -> None:
        """Unloads an adapter. Running requests finish with it; new ones cannot use it.

        :raises AdapterNotFound: no adapter has this name.
        :raises AdaptersUnsupported: adapters can be changed only at the start.
        """
        if self.fixed:
            raise adapter_errors.AdaptersUnsupported(self.fixed)
        with self._reserved(name, exists=True):
            self._retire(self._by_name.pop(name))

    def load_empty(self, model: Path) -> None:
        """Loads an adapter of zeros for requests without an adapter. vLLM's CPU kernels need it."""
        identity = next(self._identities)
        path = self._directory / str(identity)
        if not write_empty_adapter(model, path):
            logger.warning(
                "%s has no module for an adapter of zeros: do not mix requests with and without an adapter",
                model,
            )
            return
        request = self._engine.lora_request(identity, EMPTY, str(path))
        self._loop.run(self._engine.add_lora(request), LOAD_SECONDS)
        self._empty = Adapter(EMPTY, "", False, identity, path, request)

    def end(self, adapter: Adapter) -> None:
        """Call on the loop when a request that used the adapter has ended."""
        if adapter is self._empty:
            return
        adapter.running -= 1
        if adapter.leaving and not adapter.running:
            self._loop.task(self._free(adapter))

    @contextmanager
    def _reserved(self, name: str, *, exists: bool) -> Iterator[None]:
        """Keeps others from changing the adapter of this name, and no other adapter: a download takes long.

        :param exists: the adapter must be there, once nobody else changes it.
        :raises AdapterNotFound: it is not.
        :raises AdaptersFull: it would be one more than the limit.
        """
        with self._changed:
            self._changed.wait_for(lambda: name not in self._changing)
            if exists:
                self.get(name)
            elif len({*self._by_name, *self._changing, name}) > self.limit:
                raise adapter_errors.AdaptersFull(self.limit)
            self._changing.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._changing.remove(name)
                self._changed.notify_all()

    def _load(self, name: str, source: str, pinned: bool) -> Adapter:
        identity = next(self._identities)
        path = self._directory / str(identity)
        with self._bring(source) as directory:
            copy_checked(name, directory, path, self._max_rank, self.modules)
        # vLLM distinguishes cached prompts by the adapter's name. An updated adapter must not reuse the old ones.
        request = self._engine.lora_request(identity, f"{name}#{identity}", str(path))
        adapter = Adapter(name, source, pinned, identity, path, request)
        adding = self._loop.spawn(self._engine.add_lora(request))
        try:
            adding.result(LOAD_SECONDS)
        except (ValueError, TimeoutError) as error:  # vLLM may have it all the same, or will
            adding.add_done_callback(lambda _: self._loop.spawn(self._free(adapter)))
            if isinstance(error, TimeoutError):
                raise EngineBusy from None
            raise adapter_errors.InvalidAdapter(name, str(error)) from None
        return adapter

    def _retire(self, adapter: Adapter) -> None:
        async def retire() -> None:
            adapter.leaving = True
            if not adapter.running:
                await self._free(adapter)

        self._loop.run(retire(), LOAD_SECONDS)

    async def _free(self, adapter: Adapter) -> None:
        try:
            await self._engine.remove_lora(adapter.identity)
        except Exception as error:
            logger.warning("vLLM could not free the adapter '%s' (%s)", adapter.name, type(error).__name__)
        self._loop.loop.call_later(KEPT_SECONDS, lambda: shutil.rmtree(adapter.path, ignore_errors=True))
