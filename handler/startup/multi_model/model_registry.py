"""The models that are loaded beside the one of the start, by name: loaded, asked, watched and unloaded one by one.

SageMaker loads a model with POST when it is first asked for; told 507, it unloads the one that was not used for longest
and asks again ("Custom containers for multi-model endpoints", contract for serving multiple models). So nothing is
unloaded here unless that is asked for (`unload_least_used`): SageMaker would go on sending it requests.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.engine.adapters.adapters import NAME
from handler.engine.engine import Engine
from handler.errors import EndpointError, InvalidField
from handler.startup.admission import Admission, places
from handler.startup.lifecycle import Lifecycle
from handler.startup.multi_model import model_start as starting
from handler.startup.multi_model.loaded_model import LoadedModel, ModelPlaces, ModelState
from handler.startup.multi_model.memory_budget import MemoryNeed, gib, room
from handler.startup.multi_model.model_errors import ModelExists, ModelFailed, ModelNotLoaded, ModelsFull, ModelUnloaded

logger = logging.getLogger(__name__)
# A stalled engine that comes back within this many stall times goes on, as the first one does.
PATIENCE = 5.0
# Requests that were ended are given this long to say so.
LINGER = 2.0


class ModelRegistry:
    """Thread-safe. Loading and unloading wait in the caller's thread; requests never do.

    :param first: gives the engine of the start; None where there is none.
    :param first_need: what the engine of the start was promised.
    :param prepare, start: from a directory to an engine.
    """

    def __init__(
        self,
        config: EndpointConfig,
        lifecycle: Lifecycle,
        admission: Admission,
        first: Callable[[], Engine | None],
        first_need: MemoryNeed | None = None,
        prepare: starting.Prepare = starting.prepare,
        start: starting.Start = starting.start,
    ) -> None:
        self._config = config
        self._lifecycle = lifecycle
        self._admission = admission
        self._first = first
        self._first_need = first_need
        self._prepare = prepare
        self._start = start
        self._by_name: dict[str, LoadedModel] = {}
        self._changed = threading.Condition()
        self._starting = threading.Lock()

    def all(self) -> list[LoadedModel]:
        """Those that serve and those that failed."""
        with self._changed:
            shown = (ModelState.SERVING, ModelState.FAILED)
            return [model for model in self._by_name.values() if model.state in shown]

    def engines(self) -> list[Engine]:
        return [model.engine for model in self.all() if model.engine is not None]

    def get(self, name: str) -> LoadedModel:
        """:raises ModelNotLoaded: none of that name serves, or has failed."""
        found = next((model for model in self.all() if model.name == name), None)
        if found is None:
            raise ModelNotLoaded(name)
        return found

    def has(self, name: str) -> bool:
        """The name is a model's, whatever its state."""
        with self._changed:
            return name in self._by_name

    def enter(self, name: str) -> tuple[Engine, Admission] | None:
        """Takes a place for a request, which is in the endpoint's count already. None: there is no such model.

        :raises ModelFailed: it has ended.
        :raises ModelNotLoaded: it is being loaded or unloaded.
        """
        with self._changed:
            model = self._by_name.get(name)
            if model is None:
                return None
            if model.state is ModelState.FAILED:
                raise ModelFailed(name, model.reason)
            if model.state is not ModelState.SERVING or model.engine is None:
                raise ModelNotLoaded(name)
            model.places.enter()
            model.used = time.monotonic()
            return model.engine, model.places

    def load(self, name: str, source: str, path: Path) -> LoadedModel:
        """Starts an engine for the model in a directory. One at a time: what one takes, the next must see.

        :param source: as the caller named it.
        :raises EndpointError: a name that is taken or none, a model that cannot be served, or no room.
        """
        if not NAME.fullmatch(name) or ".." in name:
            problem = "it must begin with a letter or digit and have at most 256 of A-Z a-z 0-9 ._:/@=+-"
            raise InvalidField("model_name", problem)
        model = self._reserved(name, source)
        try:
            prepared = self._prepare(self._config, name, path)
            with self._starting:
                self._lifecycle.require_ready()
                self._make_room(prepared)
                logger.info("loading the model %s from %s, which needs %s", name, path, prepared.need)
                began = time.monotonic()
                model.engine, model.need = self._start(prepared), prepared.need
                model.used = time.monotonic()
                self._become(model, ModelState.SERVING)
                logger.info("the model %s serves after %.1f s", name, model.used - began)
        except BaseException:
            self._forget(model)
            raise
        self._set_limit()
        return model

    def unload(self, name: str) -> int:
        """No further request gets it. Those under way may end within `drain`; returns how many were ended then.

        :raises ModelNotLoaded: none of that name serves, or has failed.
        """
        with self._changed:
            model = self.get(name)
            failed = model.state is ModelState.FAILED
            model.state = ModelState.UNLOADING
        ended = 0
        try:
            if model.engine is not None:
                drain = 0.0 if failed else self._config.drain
                if not model.places.wait_empty(drain):
                    ended = model.places.count
                self._end(model, ModelUnloaded(name, drain))
        finally:
            self._forget(model)
            self._set_limit()
        logger.info("the model %s is unloaded; requests that were ended: %d", name, ended)
        return ended

    def watch(self) -> None:
        """Notices the engines that ended or stay stalled. Called now and then, by one thread."""
        for model in self.all():
            engine = model.engine
            if engine is None or model.state is not ModelState.SERVING:
                continue
            if engine.dead():
                self._fail(model, "its process ended")
            elif engine.stalled_for() > self._config.stall * PATIENCE:
                self._fail(model, f"it made no progress for {engine.stalled_for():.0f} s")

    def fail_requests(self) -> None:
        """The engine of the start has failed, and these end with the process."""
        for model in self.all():
            if model.engine is not None:
                model.engine.fail_requests(
                    ModelFailed(model.name, "the model of the start did, which ends the process")
                )

    def stop(self) -> None:
        """Ends the engines, for this process ends: that is no failure of theirs."""
        engines = self.engines()
        with self._changed:
            self._by_name.clear()
        for engine in engines:
            engine.stop()

    def _reserved(self, name: str, source: str) -> LoadedModel:
        """The name's entry, which keeps others from it. A model that leaves is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: not self._leaving(name))
            first, old = self._first(), self._by_name.get(name)
            taken = old is not None and old.state is not ModelState.FAILED
            if taken or (first is not None and name in first.served_names):
                raise ModelExists(name)
            model = self._by_name[name] = LoadedModel(name, source, ModelPlaces(self._admission))
            return model

    def _leaving(self, name: str) -> bool:
        model = self._by_name.get(name)
        return model is not None and model.state is ModelState.UNLOADING

    def _make_room(self, prepared: starting.PreparedModel) -> None:
        """:raises ModelsFull: there is none, and none may be made."""
        while (problem := self._lacks(prepared)) is not None:
            idle = [model for model in self.all() if model.state is ModelState.SERVING]
            oldest = min(idle, key=lambda model: model.used, default=None)
            if oldest is None or not self._config.unload_least_used:
                raise ModelsFull(problem, None if oldest is None else oldest.name)
            self.unload(oldest.name)

    def _lacks(self, prepared: starting.PreparedModel) -> str | None:
        """What there is too little of for another engine."""
        with self._changed:
            models = [model for model in self._by_name.values() if model.engine is not None]
        most = self._config.max_models
        if most is not None and len(models) >= most:
            return f"{len(models)} are loaded, as many as ENDPOINT_MAX_MODELS allows"
        promised = [(model.engine, model.need) for model in models if model.engine is not None and model.need]
        first = self._first()
        if first is not None and self._first_need is not None:
            promised.append((first, self._first_need))
        left = room(promised)
        if prepared.need.bytes > left:
            return f"it needs {prepared.need}, and {gib(left)} of the host's memory are free"
        return None

    def _fail(self, model: LoadedModel, reason: str) -> None:
        logger.error("the model %s has failed: %s", model.name, reason)
        model.reason = reason
        self._become(model, ModelState.FAILED)
        error = ModelFailed(model.name, reason)
        threading.Thread(target=self._end, args=(model, error), name="end-model", daemon=True).start()

    def _end(self, model: LoadedModel, error: EndpointError) -> None:
        """Ends what still uses the engine, with an error, and then the engine."""
        with self._changed:
            engine, model.engine = model.engine, None
        if engine is None:
            return
        engine.fail_requests(error)
        model.places.wait_empty(LINGER)
        engine.stop()
        del engine
        gc.collect()  # vLLM's client is a knot of references; what was frozen at the start is not walked
        self._set_limit()

    def _become(self, model: LoadedModel, state: ModelState) -> None:
        with self._changed:
            model.state = state
            self._changed.notify_all()

    def _forget(self, model: LoadedModel) -> None:
        with self._changed:
            if self._by_name.get(model.name) is model:
                del self._by_name[model.name]
            self._changed.notify_all()

    def _set_limit(self) -> None:
        """A queue is behind all engines' slots together."""
        first = self._first()
        slots = sum(engine.slots for engine in self.engines()) + (0 if first is None else first.slots)
        self._admission.limit = places(self._config, slots)
