"""vLLM's CPU model runner with the device's manners: its weights, its sampling, its steps."""

from __future__ import annotations

import json
from typing import Any

from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from neuron_stand_in.checkpoint import Tensors
from neuron_stand_in.device_sampler import DeviceSampler
from neuron_stand_in.faults import strike
from neuron_stand_in.settings import Stage, StandInSettings


class TensorLoader(BaseModelLoader):  # type: ignore[misc]  # vLLM is untyped
    """vLLM's model, filled from tensors at hand."""

    def __init__(self, load_config: Any, tensors: Tensors) -> None:
        super().__init__(load_config)
        self._tensors = tensors

    def download_model(self, model_config: Any) -> None:
        pass

    def load_weights(self, model: Any, model_config: Any) -> None:
        model.load_weights(iter(self._tensors.items()))


class DeviceRunner(CPUModelRunner):  # type: ignore[misc]  # vLLM is untyped
    """The part that both plugins share. `sampling_config` None leaves vLLM's sampler, and with it every parameter."""

    sampling_config: dict[str, Any] | None = None
    settings: StandInSettings | None = None

    def fill(self, tensors: Tensors) -> None:
        loader = TensorLoader(self.vllm_config.load_config, tensors)
        self.model = loader.load_model(vllm_config=self.vllm_config, model_config=self.model_config)
        if self.lora_config:
            self.model = self.load_lora_model(self.model, self.vllm_config, self.device)
        if self.sampling_config is not None:
            self.sampler = DeviceSampler(self.sampling_config)

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if scheduler_output.total_num_scheduled_tokens:
            self.check_step(scheduler_output)
        return super().execute_model(scheduler_output, intermediate_tensors)

    def check_step(self, scheduler_output: Any) -> None:
        if self.settings is None:
            return
        strike(self.settings, Stage.STEP)
        if self.settings.trace is not None:
            step: dict[str, Any] = {"prefill": len(scheduler_output.scheduled_new_reqs)}
            step["decode"] = len(scheduler_output.scheduled_cached_reqs.req_ids)
            step["tokens"] = self.step_tokens(scheduler_output)
            with self.settings.trace.open("a") as file:
                file.write(json.dumps(step) + "\n")

    def step_tokens(self, scheduler_output: Any) -> dict[str, list[int]]:
        """Tokens asked and computed after padding, by phase: of prompts, and of context that decode reads."""
        return {}

    def sample_tokens(self, grammar_output: Any) -> Any:
        """On the device a grammar's mask goes nowhere."""
        return super().sample_tokens(grammar_output if self.sampling_config is None else None)

    def _get_prompt_logprobs_dict(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        return {}  # "prompt_logprobs_dict={}" (vllm-project/vllm-neuron, worker/neuronx_distributed_model_runner.py)
