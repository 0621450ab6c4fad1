"""What the start makes and the requests use: the configuration, the state, the engines and the count of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import CustomCode
from handler.custom_code.code_errors import NoEngine
from handler.engine.adapters.shared_adapters import AdapterNotes
from handler.engine.engine import Engine
from handler.errors import ModelNotFound
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.startup.admission import Admission
from handler.startup.artifact_metrics import ArtifactMetrics
from handler.startup.lifecycle import Lifecycle
from handler.startup.multi_model.model_errors import ModelNotLoaded, ModelUnnamed
from handler.startup.multi_model.model_registry import ModelRegistry


class FrontEndGroup(Protocol):
    """The other processes that serve the same engine, as the start of the engine's owner uses them."""

    adapter_notes: AdapterNotes

    def planned(self, plan: EnginePlan, model: Model) -> None:
        """The owner is about to start an engine."""
        ...

    def gather(self, engine: Engine) -> None:
        """Waits until every front end is ready for requests.

        :raises StartFailed: they end again and again.
        """
        ...

    def unfinished(self, own: int) -> int:
        """Requests in the engine, over all processes; `own` are this process's."""
        ...


@dataclass(slots=True)
class ServingState:
    """One for each serving process.

    :ivar engine, custom_code: set by the start, before the state is ready.
    :ivar models: further models, where the endpoint may have several.
    :ivar peers: the other processes, where there are several.
    """

    config: EndpointConfig
    lifecycle: Lifecycle
    admission: Admission
    engine: Engine | None = None
    models: ModelRegistry | None = None
    artifacts: ArtifactMetrics = field(default_factory=ArtifactMetrics)
    custom_code: CustomCode | None = None
    peers: FrontEndGroup | None = None

    def unfinished(self) -> int:
        """Requests that hold or await a slot, over all processes."""
        own = sum(engine.unfinished() for engine in self.engines())
        return own if self.peers is None else self.peers.unfinished(own)

    def queued(self) -> int:
        """Of these, those beyond the slots of their engine."""
        if self.peers is not None:
            return sum(max(0, self.unfinished() - engine.slots) for engine in self.engines())
        return sum(max(0, engine.unfinished() - engine.slots) for engine in self.engines())

    def engines(self) -> list[Engine]:
        """The engine of the start, and those of further models."""
        first = [] if self.engine is None else [self.engine]
        return first if self.models is None else first + self.models.engines()

    def require_engine(self) -> None:
        """As `ready_engine`, before it is known which one a request is for."""
        if self.models is None:
            self.ready_engine()
        else:
            self.lifecycle.require_ready()

    def ready_engine(self) -> Engine:
        """The one that answers where no other is named.

        :raises ServerError: starting, draining or failed.
        :raises NoEngine: the owner's code answers by itself.
        :raises ModelUnnamed: there are further models only.
        """
        self.lifecycle.require_ready()
        engine = self.engine
        if engine is None:
            raise NoEngine if self.models is None else ModelUnnamed
        return engine

    def chosen(self, name: object) -> tuple[Engine, Admission]:
        """The engine that a request is for, and the place to give back at its end. It has one of the endpoint's.

        :param name: the model's, as the request has it; a name that is no further model's is the first engine's matter.
        :raises EndpointError: there is no engine, or the model has failed.
        """
        if self.models is None or not isinstance(name, str) or not name:
            return self.ready_engine(), self.admission
        self.lifecycle.require_ready()
        found = self.models.enter(name)
        if found is None and self.engine is None:
            raise ModelNotLoaded(name)
        if found is None and name not in self.ready_engine().served_names:
            raise ModelNotFound(name, tuple(known for engine in self.engines() for known in engine.served_names))
        return found or (self.ready_engine(), self.admission)
