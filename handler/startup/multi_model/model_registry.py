"""The registry of the models that are loaded while the endpoint serves: loads, finds, watches and unloads them by name.

SageMaker loads a model with a POST when the first request for it arrives. On a 507 it unloads the least recently used
model and tries again ("Custom containers for multi-model endpoints", contract for serving multiple models). So the
registry itself unloads a model only with the setting `unload_least_used`. Otherwise SageMaker would still send requests
to a model that is gone.
"""

from __future__ import annotations

import gc
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.engine.adapters.adapters import NAME
from handler.engine.engine import Engine
from handler.errors import EndpointError, InvalidField
from handler.startup.admission import Admission, max_in_flight
from handler.startup.lifecycle import Lifecycle
from handler.startup.multi_model import model_start
from handler.startup.multi_model.memory_budget import MemoryNeed, gib, room
from handler.startup.multi_model.model_errors import ModelExists, ModelFailed, ModelNotLoaded, ModelsFull, ModelUnloaded

logger = logging.getLogger(__name__)
# A stalled engine is failed after this many times the `stall` setting, as that of the start is.
STALL_FACTOR = 5.0
# How many seconds ended requests have to send their error.
ERROR_SECONDS = 2.0


class ModelState(StrEnum):
    LOADING = "loading"
    SERVING = "serving"
    UNLOADING = "unloading"
    FAILED = "failed"


class ModelPlaces(Admission):
    """Counts the requests of one model. They are also counted by the endpoint's admission, which has the limit.

    `enter` counts a request that the endpoint has admitted already. `leave` ends both counts.

    :ivar used: when a request last began or ended, in monotonic seconds.
    """

    __slots__ = ("_endpoint", "used")

    def __init__(self, endpoint: Admission) -> None:
        super().__init__(sys.maxsize)
        self._endpoint = endpoint
        self.used = time.monotonic()

    def enter(self) -> None:
        super().enter()
        self.used = time.monotonic()

    def leave(self) -> None:
        super().leave()
        self.used = time.monotonic()
        self._endpoint.leave()


@dataclass(slots=True)
class LoadedModel:
    """A model and its state. Only `ModelRegistry` changes it.

    :ivar engine, need: None until the model serves.
    :ivar fetched: the directory with its files, if they were fetched for it.
    :ivar reason: why it failed.
    """

    name: str
    source: str
    places: ModelPlaces
    state: ModelState = ModelState.LOADING
    engine: Engine | None = None
    need: MemoryNeed | None = None
    fetched: Path | None = None
    reason: str = ""


@dataclass(slots=True)
class ModelRegistry:
    """The models by name. Thread-safe. Loading and unloading block the caller's thread, but never a request.

    :param first: returns the engine of the start, or None if there is none.
    :param first_need: the memory that is reserved for the engine of the start.
    :param find, prepare, start: find a model's directory, check the model in it, and start its engine.
    """

    config: EndpointConfig
    lifecycle: Lifecycle
    admission: Admission
    first: Callable[[], Engine | None]
    first_need: MemoryNeed | None = None
    find: Callable[[EndpointConfig, str], Path | None] = model_start.whole_model
    prepare: model_start.Prepare = model_start.prepare
    start: model_start.Start = field(kw_only=True)
    _by_name: dict[str, LoadedModel] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def all(self) -> list[LoadedModel]:
        """The models that serve and those that failed."""
        with self._changed:
            shown = (ModelState.SERVING, ModelState.FAILED)
            return [model for model in self._by_name.values() if model.state in shown]

    def engines(self) -> list[Engine]:
        return [model.engine for model in self.all() if model.engine is not None]

    def get(self, name: str) -> LoadedModel:
        """:raises ModelNotLoaded: no model with this name serves or has failed."""
        model = next((model for model in self.all() if model.name == name), None)
        if model is None:
            raise ModelNotLoaded(name)
        return model

    def has(self, name: str) -> bool:
        """Whether a model has this name, in any state."""
        with self._changed:
            return name in self._by_name

    def enter(self, name: str) -> tuple[Engine, Admission] | None:
        """Counts a request for a model. The endpoint has admitted the request already.

        :returns: the model's engine, and the admission to leave at the end. None if no model has this name.
        :raises ModelFailed: the model's engine has ended.
        :raises ModelNotLoaded: the model is being loaded or unloaded.
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
            return model.engine, model.places

    def load(self, name: str, source: str) -> LoadedModel | None:
        """Fetches a model and starts its engine. One at a time, so that each sees the memory of the one before.

        :param source: the model's address in the request.
        :returns: None: there is no whole model at this address.
        :raises EndpointError: the name is invalid or in use, the model cannot be served, or there is no memory.
        """
        if not NAME.fullmatch(name) or ".." in name:
            problem = "it must begin with a letter or digit and have at most 256 of A-Z a-z 0-9 ._:/@=+-"
            raise InvalidField("model_name", problem)
        model = self._reserve(name, source)
        try:
            path = self.find(self.config, source)
            if path is None:
                self._remove(model)
                return None
            model.fetched = path if source.startswith("s3://") else None
            prepared = self.prepare(self.config, name, path)
            with self._starting:
                self.lifecycle.require_ready()
                self._make_room(prepared)
                logger.info("loading the model %s from %s, which needs %s", name, path, prepared.need)
                began = time.monotonic()
                model.engine, model.need = self.start(prepared), prepared.need
                model.places.used = time.monotonic()
                self._set_state(model, ModelState.SERVING)
                logger.info("the model %s serves after %.1f s", name, model.places.used - began)
        except ModelsFull:
            model.fetched = None  # whoever makes room tries again, and finds the files
            self._remove(model)
            raise
        except BaseException:
            self._remove(model)
            raise
        self._set_limit()
        return model

    def unload(self, name: str) -> int:
        """Unloads a model. Running requests may finish within the setting `drain`; new ones are rejected.

        :returns: how many requests were ended.
        :raises ModelNotLoaded: no model with this name serves or has failed.
        """
        with self._changed:
            model = self.get(name)
            failed = model.state is ModelState.FAILED
            model.state = ModelState.UNLOADING
        ended = 0
        try:
            if model.engine is not None:
                drain = 0.0 if failed else self.config.drain
                if not model.places.wait_empty(drain):
                    ended = model.places.count
                self._end(model, ModelUnloaded(name, drain))
        finally:
            self._remove(model)
            self._set_limit()
        logger.info("the model %s is unloaded; requests that were ended: %d", name, ended)
        return ended

    def watch(self) -> None:
        """Fails the models whose engine has ended or is stalled for too long. Call regularly, from one thread."""
        for model in self.all():
            engine = model.engine
            if engine is None or model.state is not ModelState.SERVING:
                continue
            if engine.dead():
                self._fail(model, f"its process {engine.ended()}")
            elif engine.stalled_for() > self.config.stall * STALL_FACTOR:
                self._fail(model, f"it made no progress for {engine.stalled_for():.0f} s")

    def fail_requests(self) -> None:
        """Ends all requests with an error, because the engine of the start has failed and the process ends."""
        for model in self.all():
            if model.engine is not None:
                reason = "the engine of the first model failed, which ends the process"
                model.engine.fail_requests(ModelFailed(model.name, reason))

    def stop(self) -> None:
        """Ends the engines, because the process ends. The models are not marked as failed."""
        engines = self.engines()
        with self._changed:
            self._by_name.clear()
        for engine in engines:
            engine.stop()

    def _reserve(self, name: str, source: str) -> LoadedModel:
        """Reserves a name with a new entry. Waits for one that is being unloaded with this name, or these files."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_unloading(name, source))
            self._require_free(name)
            failed = self._by_name.get(name)
            model = self._by_name[name] = LoadedModel(name, source, ModelPlaces(self.admission))
        if failed is not None:
            self._delete_files(failed)
        return model

    def _require_free(self, name: str) -> None:
        """:raises ModelExists: a model or an adapter has this name, and has not failed."""
        with self._changed:
            first, old = self.first(), self._by_name.get(name)
            if old is not None and old.state not in (ModelState.FAILED, ModelState.UNLOADING):
                raise ModelExists(name)
            if first is not None and (name in first.base_names or (first.adapters and first.adapters.has(name))):
                raise ModelExists(name)

    def _is_unloading(self, name: str, source: str) -> bool:
        leaving = [model for model in self._by_name.values() if model.state is ModelState.UNLOADING]
        return any(model.name == name or (model.fetched and model.source == source) for model in leaving)

    def _make_room(self, prepared: model_start.PreparedModel) -> None:
        """Unloads models until there is room for another, if that is allowed. One that is leaving makes room, too.

        :raises ModelsFull: there is no room.
        """
        while (problem := self._no_room_reason(prepared)) is not None:
            if self.config.unload_least_used and self._leaving():
                with self._changed:
                    self._changed.wait_for(lambda: not self._leaving())
                continue
            serving = [model for model in self.all() if model.state is ModelState.SERVING]
            oldest = min(serving, key=lambda model: (model.places.count > 0, model.places.used), default=None)
            if oldest is None or not self.config.unload_least_used:
                raise ModelsFull(problem, None if oldest is None else oldest.name)
            if (problem := self._no_room_reason(prepared, without=serving)) is not None:
                raise ModelsFull(problem)
            with suppress(ModelNotLoaded):  # somebody else has begun to unload it
                self.unload(oldest.name)

    def _leaving(self) -> bool:
        with self._changed:
            return any(model.state is ModelState.UNLOADING for model in self._by_name.values())

    def _no_room_reason(self, prepared: model_start.PreparedModel, without: Sequence[LoadedModel] = ()) -> str | None:
        """Why there is no room for another engine. None if there is.

        :param without: asks as if these models were unloaded.
        """
        with self._changed:
            models = [model for model in self._by_name.values() if model.engine is not None and model not in without]
        most = self.config.max_models
        if most is not None and len(models) >= most:
            return f"{len(models)} models are loaded, the limit of ENDPOINT_MAX_MODELS"
        reserved = [(model.engine, model.need) for model in models if model.engine is not None and model.need]
        first = self.first()
        if first is not None and self.first_need is not None:
            reserved.append((first, self.first_need))
        free = room(reserved, [model.engine for model in without if model.engine is not None])
        if prepared.need.bytes > free:
            when = "would be free without all models that were loaded" if without else "are free"
            return f"it needs {prepared.need}, and {gib(free)} of the host's memory {when}"
        return None

    def _fail(self, model: LoadedModel, reason: str) -> None:
        logger.error("the model %s has failed: %s", model.name, reason)
        model.reason = reason
        self._set_state(model, ModelState.FAILED)
        error = ModelFailed(model.name, reason)
        threading.Thread(target=self._end, args=(model, error), name="end-model", daemon=True).start()

    def _end(self, model: LoadedModel, error: EndpointError) -> None:
        """Ends a model's requests with an error, and then its engine."""
        with self._changed:
            engine, model.engine = model.engine, None
        if engine is None:
            return
        engine.fail_requests(error)
        model.places.wait_empty(ERROR_SECONDS)
        engine.stop()
        del engine
        gc.collect()  # vLLM's client has circular references. Objects that were frozen at the start are not walked
        self._set_limit()

    def _set_state(self, model: LoadedModel, state: ModelState) -> None:
        with self._changed:
            model.state = state
            self._changed.notify_all()

    def _remove(self, model: LoadedModel) -> None:
        self._set_state(model, ModelState.UNLOADING)
        self._delete_files(model)
        with self._changed:
            if self._by_name.get(model.name) is model:
                del self._by_name[model.name]
            self._changed.notify_all()

    def _delete_files(self, model: LoadedModel) -> None:
        """Deletes the files of a model that leaves, unless another one of the same source has them, or fetches them."""
        with self._changed:
            staying = [other for other in self._by_name.values() if other.state is not ModelState.UNLOADING]
            shared = any(other is not model and other.source == model.source for other in staying)
        if model.fetched is not None and not shared:
            shutil.rmtree(model.fetched, ignore_errors=True)

    def _set_limit(self) -> None:
        """Sets the endpoint's limit of requests from the slots of all engines. Without one it is that of the start."""
        first = self.first()
        slots = sum(engine.slots for engine in self.engines()) + (0 if first is None else first.slots)
        self.admission.limit = max_in_flight(self.config, slots) if slots else self.config.max_concurrent
