"""The state of a serving process, which the start fills and the requests use: lifecycle, engines, request counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import CustomCode
from handler.custom_code.code_errors import NoEngine
from handler.engine.adapters.adapters import Adapter, Adapters
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.errors import EngineFailed, ModelNotFound
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.startup.admission import Admission
from handler.startup.artifact_metrics import ArtifactMetrics
from handler.startup.lifecycle import Lifecycle
from handler.startup.multi_model.model_errors import ModelNotLoaded, ModelUnnamed
from handler.startup.multi_model.model_registry import LoadedModel, ModelRegistry


@dataclass(slots=True)
class ServingState:
    """The state of one serving process.

    :ivar loop: serves the connections, and all engines.
    :ivar engine, custom_code: set by the start, before the endpoint is ready.
    :ivar models: the models that are loaded later, if the endpoint may have several.
    """

    config: EndpointConfig
    loop: LoopThread
    lifecycle: Lifecycle
    admission: Admission
    engine: Engine | None = None
    models: ModelRegistry | None = None
    artifacts: ArtifactMetrics = field(default_factory=ArtifactMetrics)
    custom_code: CustomCode | None = None

    def unfinished(self) -> int:
        """How many requests hold a slot or wait for one."""
        return sum(engine.unfinished() for engine in self.engines())

    def queued(self) -> int:
        """How many of them wait for a slot."""
        return sum(max(0, engine.unfinished() - engine.slots) for engine in self.engines())

    def engines(self) -> list[Engine]:
        """The engine of the start, and those of further models."""
        first = [] if self.engine is None else [self.engine]
        return first if self.models is None else first + self.models.engines()

    def buckets(self) -> CompiledBuckets | None:
        """The buckets of the engine. With several models, a request does not tell whose they are."""
        engines = self.engines()
        return engines[0].buckets if len(engines) == 1 else None

    def require_engine(self) -> None:
        """As `ready_engine`, when the request's model is not known yet."""
        if self.models is None:
            self.ready_engine()
        else:
            self.lifecycle.require_ready()

    def ready_engine(self) -> Engine:
        """The engine of the start, which answers requests that name no other model.

        :raises ServerError: the endpoint is starting, draining or failed.
        :raises NoEngine: the model's own code serves without an engine.
        :raises ModelUnnamed: the endpoint started without a model.
        """
        self.lifecycle.require_ready()
        engine = self.engine
        if engine is None:
            raise NoEngine if self.models is None else ModelUnnamed
        if engine.dead():  # the watchdog has not seen it yet
            raise EngineFailed("its process ended")
        return engine

    @property
    def adapters(self) -> Adapters | None:
        """The adapters of the model of the start; None if its engine serves none."""
        return None if self.engine is None else self.engine.adapters

    def has_model(self, name: str) -> bool:
        """Whether a further model has this name, in any state."""
        return self.models is not None and self.models.has(name)

    def model(self, name: str) -> LoadedModel | Adapter:
        """:raises ModelNotLoaded: there is neither a model nor an adapter of this name."""
        self.require_engine()
        adapters = self.adapters
        if adapters is None or name not in adapters.names():
            if self.models is None:
                raise ModelNotLoaded(name)
            return self.models.get(name)
        return adapters.get(name)

    def resolve_engine(self, name: object) -> tuple[Engine, Admission]:
        """The engine for an admitted request, and the admission that the request must leave at its end.

        :param name: the model's name in the request. A name of no later model goes to the engine of the start.
        :raises EndpointError: there is no engine for it, or its model has failed.
        """
        if self.models is None or not isinstance(name, str) or not name:
            return self.ready_engine(), self.admission
        self.lifecycle.require_ready()
        entered = self.models.enter(name)
        if entered is None and self.engine is None:
            raise ModelNotLoaded(name)
        if entered is None and name not in self.ready_engine().served_names:
            raise ModelNotFound(name, tuple(known for engine in self.engines() for known in engine.served_names))
        return entered or (self.ready_engine(), self.admission)
