"""Test code: a stand-in for the Neuron plugins of vLLM, over the CPU worker. README.md says which facts it keeps.

Nothing here runs on Neuron, compiles for it, or says anything of its speed.
"""

from __future__ import annotations

import os

SWITCH = "NEURON_STAND_IN"
PLATFORMS = {
    "1": "neuron_stand_in.nxdi.platform.NxdiStandInPlatform",
    "nxdi": "neuron_stand_in.nxdi.platform.NxdiStandInPlatform",
    "native": "neuron_stand_in.native.platform.NativeStandInPlatform",
    "nxdi-configuration": "neuron_stand_in.configuration_only.NxdiConfigurationPlatform",
    "native-configuration": "neuron_stand_in.configuration_only.NativeConfigurationPlatform",
}


def register() -> str | None:
    """The platform class for vLLM, by the value of NEURON_STAND_IN; None, so that vLLM goes on without, when unset.

    The real plugins look for /dev/neuron* here.
    """
    return PLATFORMS.get(os.environ.get(SWITCH, ""))
