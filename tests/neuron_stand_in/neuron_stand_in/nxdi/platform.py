"""The platform that vLLM loads for NEURON_STAND_IN=1."""

from __future__ import annotations

import os
from typing import Any

from neuron_stand_in.device_platform import DevicePlatform
from neuron_stand_in.nxdi.forced_arguments import force


class NxdiStandInPlatform(DevicePlatform):
    """It does not limit prompts: on vLLM 0.16 the plugin cannot import the module that it would change for that."""

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        super().pre_register_and_update(parser)
        take_length_as_given()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        if vllm_config.model_config is None:  # vLLM builds empty ones, too
            return
        force(vllm_config, os.environ)
        cls.finish_on_cpu(vllm_config)


def take_length_as_given() -> None:
    """max_model_len as given, even if that is nothing: the plugin replaces vLLM's own derivation of it."""
    from vllm.config import ModelConfig

    own = ModelConfig.get_and_verify_max_len
    if getattr(own, "of_the_stand_in", False):
        return

    def get_and_verify_max_len(self: Any, max_model_len: int | None) -> Any:
        if max_model_len is None and self.spec_target_max_model_len is None:
            return None
        return own(self, max_model_len)

    get_and_verify_max_len.of_the_stand_in = True  # type: ignore[attr-defined]
    ModelConfig.get_and_verify_max_len = get_and_verify_max_len
