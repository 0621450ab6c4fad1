"""Platforms without rules of a plugin: what vLLM's own configuration says on a device that is no CPU and no GPU.

`make test-arguments` asks them. No engine starts on them.
"""

from __future__ import annotations

import os
from typing import Any

from neuron_stand_in.native.platform import NativeStandInPlatform, place_connector
from neuron_stand_in.nxdi.forced_arguments import force
from neuron_stand_in.nxdi.platform import NxdiStandInPlatform


class NativeConfigurationPlatform(NativeStandInPlatform):
    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Nothing of the plugin's, but the place of its connector."""
        place_connector(vllm_config)

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        """As vLLM's own platform class, which the plugin's extends. That for CPUs has graphs."""
        return False


class NxdiConfigurationPlatform(NxdiStandInPlatform):
    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        if vllm_config.model_config is not None:
            force(vllm_config, os.environ)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """As vLLM's own platform class, which the plugin's extends. vLLM then takes its smallest budget of tokens."""
        raise NotImplementedError
