"""What the routes share: the configuration, the life, the places, and the engine once there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from container.admission import Admission
from container.artifact_figures import ArtifactFigures
from container.deadlines import ReadDeadlines
from container.front_ends.peers import Peers
from container.lifecycle import Lifecycle
from container.neuron_monitor import NeuronMonitor
from container.observer import Observer
from container.tracing.settings import wanted
from handler.config.endpoint import EndpointConfig
from handler.custom_code.errors import NoEngine
from handler.custom_code.exchange import CustomCode
from handler.engine.engine import Engine
from handler.sessions.store import Sessions

if TYPE_CHECKING:  # it imports OpenTelemetry
    from container.tracing.tracer import RequestTracer


def request_tracer(environ: Mapping[str, str]) -> RequestTracer | None:
    """Where OpenTelemetry's variables ask for traces."""
    if wanted(environ) is None:
        return None
    from container.tracing.tracer import RequestTracer

    return RequestTracer(environ)


@dataclass(slots=True)
class Service:
    """One for each serving process. `engine` and `custom_code` are set by the start, before it is ready;
    `monitor` where neuron-monitor is installed; `peers` where there are several processes."""

    config: EndpointConfig
    lifecycle: Lifecycle
    admission: Admission
    deadlines: ReadDeadlines
    observer: Observer
    engine: Engine | None = None
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
        own = self.engine.unfinished() if self.engine is not None else 0
        return own if self.peers is None else self.peers.unfinished(own)

    def ready_engine(self) -> Engine:
        """:raises ServerError: starting, draining or failed.
        :raises NoEngine: the owner's code answers by itself.
        """
        self.lifecycle.require_ready()
        engine = self.engine
        if engine is None:
            raise NoEngine
        return engine
