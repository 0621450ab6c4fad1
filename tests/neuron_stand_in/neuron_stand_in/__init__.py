"""Test code: a stand-in for the Neuron plugins of vLLM, over the CPU worker. README.md says which facts it keeps.

Nothing here runs on Neuron, compiles for it, or says anything of its speed.
"""

from __future__ import annotations

import os
import time
from functools import partial

SWITCH = "NEURON_STAND_IN"
PLATFORMS = {
    "1": "neuron_stand_in.nxdi.platform.NxdiStandInPlatform",
    "nxdi": "neuron_stand_in.nxdi.platform.NxdiStandInPlatform",
    "native": "neuron_stand_in.native.platform.NativeStandInPlatform",
    "nxdi-configuration": "neuron_stand_in.configuration_only.NxdiConfigurationPlatform",
    "native-configuration": "neuron_stand_in.configuration_only.NativeConfigurationPlatform",
    "optimum-configuration": "neuron_stand_in.optimum_configuration.OptimumConfigurationPlatform",
}


def register() -> str | None:
    """The platform class for vLLM, by the value of NEURON_STAND_IN; None, so that vLLM goes on without, when unset.

    The real plugins look for /dev/neuron* here.
    """
    return PLATFORMS.get(os.environ.get(SWITCH, ""))


def wait_without_spinning() -> None:
    """The core and its worker sleep while they wait for each other, as the endpoint's do on a CPU: a spin would leave
    other processes of a small machine without CPU time, and there is no device that it could spare anything.
    """
    if os.environ.get(SWITCH):
        from vllm.distributed.device_communicators import shm_broadcast

        shm_broadcast.sched_yield = partial(time.sleep, 5e-6)
