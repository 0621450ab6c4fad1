"""The platform that vLLM loads for NEURON_STAND_IN=native."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from neuron_stand_in.device_platform import DevicePlatform
from neuron_stand_in.native.configuration import ASYNC, NativeConfiguration
from neuron_stand_in.native.native_rules import QUANTIZATIONS, Place, enforce

WORKER = "neuron_stand_in.native.worker.NativeStandInWorker"
CONNECTOR = "neuron_stand_in.native.nixl_connector"
PLACES = (Place.PLATFORM, Place.WORKER, Place.RUNNER, Place.SCHEDULER)


class NativeStandInPlatform(DevicePlatform):
    """Holds a configuration to the plugin's rules. All of a start's are held here, before any process is made."""

    supported_quantization: ClassVar[list[str]] = [*QUANTIZATIONS]

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """vLLM's own division of heads stays, as with the plugin."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """:raises Exception: a rule is broken; of the rule's kind."""
        if vllm_config.model_config is None:
            return
        asked = NativeConfiguration.of(vllm_config, os.environ)
        enforce(asked, *PLACES)
        place_connector(vllm_config)
        vllm_config.additional_config = {**asked.additional, ASYNC: asked.async_scheduling}
        if hasattr(vllm_config.cache_config, "user_specified_block_size"):  # vLLM 0.24.0
            vllm_config.cache_config.user_specified_block_size = False
        else:  # 0.16.0
            vllm_config.cache_config.block_size = None
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = WORKER
        cls.finish_on_cpu(vllm_config)


def place_connector(vllm_config: Any) -> None:
    """The module of the plugin's connector, so that users give its name alone (vllm_neuron/vllm/platform.py)."""
    transfer = vllm_config.kv_transfer_config
    if transfer is not None and transfer.kv_connector == "NeuronNixlConnector":
        transfer.kv_connector_module_path = CONNECTOR
