"""What the routes share: the configuration, the life, the places, and the engine once there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from container.connection.read_timeouts import ReadTimeouts
from container.process_group.peers import Peers
from container.telemetry.neuron_monitor import NeuronMonitor
from container.telemetry.request_observer import RequestObserver
from container.telemetry.tracing.tracing_settings import wanted
from handler.config.endpoint_config import EndpointConfig
from handler.sessions.session_store import Sessions
from handler.startup.admission import Admission
from handler.startup.lifecycle import Lifecycle
from handler.startup.serving_state import ServingState

if TYPE_CHECKING:
    from container.telemetry.tracing.tracer import RequestTracer  # it imports OpenTelemetry


def request_tracer(environ: Mapping[str, str]) -> RequestTracer | None:
    """Where OpenTelemetry's variables ask for traces."""
    if wanted(environ) is None:
        return None
    from container.telemetry.tracing.tracer import RequestTracer

    return RequestTracer(environ)


@dataclass(slots=True, kw_only=True)
class Service(ServingState):
    """What the routes share. One for each serving process.

    :ivar deadlines: time limits for what clients send.
    :ivar sessions: where sessions are switched on.
    :ivar monitor: where neuron-monitor is installed.
    """

    deadlines: ReadTimeouts
    observer: RequestObserver
    sessions: Sessions | None = None
    monitor: NeuronMonitor | None = None
    peers: Peers | None = None

    @classmethod
    def of(cls, config: EndpointConfig, lifecycle: Lifecycle | None = None, shared: Admission | None = None) -> Service:
        """:param shared: counts the requests of several processes."""
        admission = shared or Admission(config.max_concurrent)
        observer = RequestObserver(config, lambda: admission.total, request_tracer(os.environ))
        service = cls(
            config=config,
            lifecycle=lifecycle or Lifecycle(),
            admission=admission,
            deadlines=ReadTimeouts(),
            observer=observer,
        )
        if config.enable_sessions:
            service.sessions = Sessions(config.max_sessions, config.session_expiration, time.time)
        return service
