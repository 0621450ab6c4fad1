"""One model of a multi-model endpoint, with its engine and the count of its requests."""

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
    """Counts the requests of one model. They are also counted by the endpoint's admission, which has the limit.

    `enter` counts a request that the endpoint has admitted already. `leave` ends both counts.
    """

    __slots__ = ("_endpoint",)

    def __init__(self, endpoint: Admission) -> None:
        super().__init__(sys.maxsize)
        self._endpoint = endpoint

    def leave(self) -> None:
        super().leave()
        self._endpoint.leave()


@dataclass(slots=True)
class LoadedModel:
    """A model and its state. Only `ModelRegistry` changes it.

    :ivar engine, need: None until the model serves.
    :ivar used: when a request last used it, in monotonic seconds.
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
