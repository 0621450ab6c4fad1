"""The platform that vLLM loads for NEURON_STAND_IN=1."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from neuron_stand_in.device_platform import DevicePlatform
from neuron_stand_in.nxdi.forced_arguments import force


class NxdiStandInPlatform(DevicePlatform):
    max_prompt_length: ClassVar[int | None] = None

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        super().pre_register_and_update(parser)
        take_length_as_given()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        if vllm_config.model_config is None:  # vLLM builds empty ones, too
            return
        force(vllm_config, os.environ)
        cls.max_prompt_length = (vllm_config.additional_config or {}).get("max_prompt_length")
        cls.finish_on_cpu(vllm_config)

    @classmethod
    def validate_request(cls, prompt: Any, params: Any, processed_inputs: Any) -> None:
        """:raises ValueError: a prompt over additional_config.max_prompt_length; vLLM makes it a 400."""
        length = len(processed_inputs.get("prompt_token_ids") or ())
        if cls.max_prompt_length is not None and length > cls.max_prompt_length:
            raise ValueError(f"prompt of {length} tokens exceeds max_prompt_length ({cls.max_prompt_length})")


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
