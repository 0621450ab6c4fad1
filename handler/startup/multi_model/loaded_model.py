"""One model beside others, and the requests that use it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum

from handler.engine.engine import Engine
from handler.startup.admission import Admission
from handler.startup.multi_model.memory_budget import MemoryNeed


class ModelState(StrEnum):
    LOADING = "loading"
    SERVING = "serving"
    UNLOADING = "unloading"
    FAILED = "failed"


class ModelPlaces(Admission):
    """The places that one model's requests hold. `enter` takes its own alone, for a request that is let in to the
    endpoint already; `leave` gives both back."""

    __slots__ = ("_endpoint",)

    def __init__(self, endpoint: Admission) -> None:
        super().__init__(sys.maxsize)
        self._endpoint = endpoint

    def leave(self) -> None:
        super().leave()
        self._endpoint.leave()


@dataclass(slots=True)
class LoadedModel:
    """What is known of it. Changed by `Models` alone.

    :ivar engine, need: None until it serves.
    :ivar used: when it was last asked for, in monotonic seconds.
    :ivar reason: why it failed.
    """

    name: str
    source: str
    places: ModelPlaces
    state: ModelState = ModelState.LOADING
    engine: Engine | None = None
    need: MemoryNeed | None = None
    used: float = field(default_factory=time.monotonic)
    reason: str = ""
