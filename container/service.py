"""What the routes share: the configuration, the life, the places, and the engine once there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from container.connection.read_timeouts import ReadDeadlines
from container.process_group.peers import Peers
from container.telemetry.neuron_monitor import NeuronMonitor
from container.telemetry.request_observer import Observer
from container.telemetry.tracing.tracing_settings import wanted
from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import CustomCode
from handler.custom_code.code_errors import NoEngine
from handler.engine.engine import Engine
from handler.errors import ModelNotFound
from handler.sessions.session_store import Sessions
from handler.startup.admission import Admission
from handler.startup.artifact_metrics import ArtifactFigures
from handler.startup.lifecycle import Lifecycle
from handler.startup.multi_model.model_errors import ModelNotLoaded, ModelUnnamed

if TYPE_CHECKING:
    from container.telemetry.tracing.tracer import RequestTracer  # it imports OpenTelemetry
    from handler.startup.multi_model.model_registry import Models


def request_tracer(environ: Mapping[str, str]) -> RequestTracer | None:
    """Where OpenTelemetry's variables ask for traces."""
    if wanted(environ) is None:
        return None
    from container.telemetry.tracing.tracer import RequestTracer

    return RequestTracer(environ)


@dataclass(slots=True)
class Service:
    """One for each serving process. `engine` and `custom_code` are set by the start, before it is ready;
    `models` where there may be several; `monitor` where neuron-monitor is installed; `peers` where there are several
    processes."""

    config: EndpointConfig
    lifecycle: Lifecycle
    admission: Admission
    deadlines: ReadDeadlines
    observer: Observer
    engine: Engine | None = None
    models: Models | None = None
    artifacts: ArtifactFigures = field(default_factory=ArtifactFigures)
    custom_code: CustomCode | None = None
    sessions: Sessions | None = None
    monitor: NeuronMonitor | None = None
    peers: Peers | None = None

    @classmethod
    def of(cls, config: EndpointConfig, lifecycle: Lifecycle | None = None, shared: Admission | None = None) -> Service:
        """:param shared: counts the requests of several processes."""
        admission = shared or Admission(config.max_concurrent)
        observer = Observer(config, lambda: admission.total, request_tracer(os.environ))
        service = cls(config, lifecycle or Lifecycle(), admission, ReadDeadlines(), observer)
        if config.enable_sessions:
            service.sessions = Sessions(config.max_sessions, config.session_expiration, time.time)
        return service

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
