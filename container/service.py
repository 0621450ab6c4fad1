"""The service object that the routes share: configuration, state, admission, and the engine once there is one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from container.http.body_budget import BodyBudget
from container.recovery.recovery import Recovery
from container.telemetry.request_observer import RequestObserver
from handler.batches.batches import Batches
from handler.config.endpoint_config import EndpointConfig
from handler.config.tracing_settings import enabled_by
from handler.engine.event_loop import LoopThread
from handler.neuron.hardware.neuron_monitor import NeuronMonitor
from handler.sessions.session_store import Sessions
from handler.startup.admission import Admission
from handler.startup.lifecycle import Lifecycle
from handler.startup.serving_state import ServingState


@dataclass(slots=True, kw_only=True)
class Service(ServingState):
    """The objects that the routes of one serving process share.

    :ivar bodies: bounds the bytes of all bodies together.
    :ivar sessions: None where sessions are off.
    :ivar monitor: None where neuron-monitor is not installed.
    :ivar batches: files and batches; None where they are off.
    :ivar recovery: what becomes of requests whose engine has died.
    :ivar last_failure: why the serving process before this one ended, and when, in Unix seconds; None for the first.
    """

    observer: RequestObserver
    bodies: BodyBudget
    sessions: Sessions | None = None
    monitor: NeuronMonitor | None = None
    batches: Batches | None = None
    recovery: Recovery = field(default_factory=Recovery)
    last_failure: dict[str, object] | None = None

    @classmethod
    def of(cls, config: EndpointConfig, lifecycle: Lifecycle | None = None, loop: LoopThread | None = None) -> Service:
        """Makes the service of this process, and starts its loop if it is given none."""
        admission = Admission(config.max_concurrent)
        tracer = None
        if enabled_by(os.environ) is not None:
            from container.telemetry.tracing.tracer import RequestTracer  # it imports OpenTelemetry

            tracer = RequestTracer(os.environ)
        observer = RequestObserver(config, lambda: admission.count, tracer)
        service = cls(
            config=config,
            loop=loop or LoopThread.start("serving"),
            lifecycle=lifecycle or Lifecycle(),
            admission=admission,
            observer=observer,
            bodies=BodyBudget.of(config),
        )
        observer.buckets = service.buckets
        if config.batch_store:
            service.batches = Batches(service, config.batch_store)
        if config.enable_sessions:
            service.sessions = Sessions(config.max_sessions, config.session_expiration, time.time)
        return service
