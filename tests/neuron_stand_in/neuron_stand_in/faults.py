"""Failing on request, at a stage of a compile."""

from __future__ import annotations

import os
import signal

from neuron_stand_in.settings import Fault, Stage, StandInSettings

EXIT_STATUS = 70  # what neuronx-cc exits with when it fails


def strikes_at(settings: StandInSettings, stage: Stage) -> bool:
    """Whether a fault is due now."""
    if settings.fault is None or settings.fault_at is not stage:
        return False
    return settings.fault_once is None or not settings.fault_once.exists()


def strike(settings: StandInSettings, stage: Stage) -> None:
    """Fails if it is due; else nothing.

    :raises RuntimeError: EXCEPTION and OOM, as a failed neuronx-cc and a full device do. EXIT and KILL end the process,
        HOLD never returns.
    """
    if not strikes_at(settings, stage):
        return
    if settings.fault_once is not None:
        settings.fault_once.touch()
    match settings.fault:
        case Fault.HOLD:
            while True:
                signal.pause()
        case Fault.EXIT:
            os._exit(EXIT_STATUS)
        case Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.OOM if stage is Stage.LOAD:
            raise RuntimeError("Failed to allocate device memory: status=4 (stand-in)")
        case Fault.OOM:
            raise RuntimeError("[F137] neuronx-cc was forcibly killed: insufficient system memory (stand-in)")
        case _:
            raise RuntimeError(f"Failed compilation with neuronx-cc: exit status {EXIT_STATUS} (stand-in)")
