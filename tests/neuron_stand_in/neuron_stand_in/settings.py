"""What a test can set of the stand-in itself. The plugin's own variables are read where the plugin reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MODEL_BYTES = 65536
COMPILER = "0.0.0.0+standin"


class Fault(StrEnum):
    """How it fails: an exception, the process gone with a status, killed, or the compiler or device out of memory.
    HOLD does not fail: it stands still there, for a test that wants to end the process from outside."""

    EXCEPTION = "exception"
    EXIT = "exit"
    KILL = "kill"
    OOM = "oom"
    HOLD = "hold"


class Stage(StrEnum):
    """When it fails. CONFIG: neuron_config.json is written. TRACE: half of the graphs are compiled. MODEL: half of
    model.pt is written. SHARDS: the first of the shards is. LOAD: everything is, and the device takes it. STEP: the
    engine makes its first step, which is the first request's prefill."""

    CONFIG = "config"
    TRACE = "trace"
    MODEL = "model"
    SHARDS = "shards"
    LOAD = "load"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class StandInSettings:
    """From STAND_IN_* variables, which are no part of an endpoint's configuration.

    :param compile_seconds: of a whole compile, spread over its graphs.
    :param fault_once: a file made just before the fault, which then does not strike again.
    :param trace: a file that gets one JSON line for each step of the engine: requests prefilled and decoded.
    :param model_bytes: size of model.pt's body.
    :param compiler: version of neuronx-cc that the caches are named by.
    """

    compile_seconds: float = 0.0
    fault: Fault | None = None
    fault_at: Stage = Stage.TRACE
    fault_once: Path | None = None
    trace: Path | None = None
    model_bytes: int = MODEL_BYTES
    compiler: str = COMPILER

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> StandInSettings:
        """:raises ValueError: a fault or stage that there is not, or a number that is none."""

        def get(name: str) -> str | None:
            return environment.get(f"STAND_IN_{name}") or None

        fault, once, trace = get("FAULT"), get("FAULT_ONCE"), get("TRACE")
        return cls(
            compile_seconds=float(get("COMPILE_SECONDS") or 0),
            fault=Fault(fault) if fault else None,
            fault_at=Stage(get("FAULT_AT") or Stage.TRACE),
            fault_once=Path(once) if once else None,
            trace=Path(trace) if trace else None,
            model_bytes=int(get("MODEL_BYTES") or MODEL_BYTES),
            compiler=get("COMPILER") or COMPILER,
        )
