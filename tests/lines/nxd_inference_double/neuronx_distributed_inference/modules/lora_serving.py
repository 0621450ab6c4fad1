"""A double of `neuronx_distributed_inference.modules.lora_serving`: adapters that are found, and not computed.

Interface: aws-neuron/neuronx-distributed-inference, lora_serving/config.py and lora_model.py, as vLLM 0.9.1 calls them
(worker/neuronx_distributed_model_runner.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch


class LoraServingConfig:
    """:raises FileNotFoundError: an adapter is not there."""

    def __init__(
        self,
        *,
        max_loras: int,
        max_lora_rank: int,
        target_modules: Sequence[str] | None,
        lora_ckpt_paths: Mapping[str, str],
    ) -> None:
        for name, path in lora_ckpt_paths.items():
            if not (Path(path) / "adapter_config.json").is_file():
                raise FileNotFoundError(f"LoRA adapter path {path} for adapter ID {name} is not found.")
        self.max_loras, self.max_lora_rank = max_loras, max_lora_rank
        self.target_modules, self.lora_ckpt_paths = target_modules, dict(lora_ckpt_paths)


class LoraCheckpoint:
    """Numbers the adapters. 0 is the model itself."""

    def __init__(self, config: LoraServingConfig) -> None:
        self._numbers = {"0": 0, **{name: number for number, name in enumerate(config.lora_ckpt_paths, 1)}}

    def convert_adapter_ids_to_indices(self, adapter_ids: Sequence[str], batch_size: int) -> torch.Tensor:
        """:raises KeyError: there is no such adapter."""
        assert len(adapter_ids) == batch_size
        return torch.tensor([self._numbers[name] for name in adapter_ids], dtype=torch.int32)
