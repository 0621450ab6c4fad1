"""A double of NxD's `ModelBuilder`: what it compiles is a TorchScript module that computes a Llama on the CPU.

Interfaces: AWS Neuron documentation, "NxD Core Inference APIs" (ModelBuilder: add, trace, shard_checkpoint), and what
optimum-neuron 0.4.5 calls (models/inference/backend/pretrained_model.py, decoder_wrappers.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compiled_llama import COMPILES, Graphs
from safetensors.torch import save_file
from torch import Tensor, nn


class BaseModelInstance:
    """What a graph is compiled from. optimum-neuron's own class has the configuration."""


class TracedModel(nn.Module):
    """The compiled model as NxD saves it: its runtime is `nxd_model`."""

    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.nxd_model = graphs

    def forward(self, input_ids: Tensor, position_ids: Tensor, seq_ids: Tensor, sampling_params: Tensor) -> Tensor:
        return self.nxd_model(input_ids, position_ids, seq_ids, sampling_params)  # type: ignore[no-any-return]


class ModelBuilder:
    """Compiles graphs, and shards a checkpoint: here each rank has all of it.

    :param checkpoint_loader: returns the weights by the names of optimum-neuron's model.
    """

    def __init__(
        self,
        router: None,
        tp_degree: int,
        checkpoint_loader: Callable[[], dict[str, Tensor]] | None = None,
        **others: object,
    ) -> None:
        self._ranks, self._load = tp_degree, checkpoint_loader
        self._graphs: dict[str, tuple[Any, torch.Size]] = {}

    def add(self, key: str, model_instance: Any, example_inputs: list[tuple[Tensor, ...]], **others: object) -> None:
        self._graphs[key] = model_instance, example_inputs[0][0].shape

    def trace(self, initialize_model_weights: bool = True) -> torch.jit.ScriptModule:
        print(COMPILES, flush=True)
        instance, token = self._graphs["token_generation"]
        _, prompt = self._graphs["context_encoding"]
        graphs = Graphs(instance.config, instance.neuron_config, prompt, token)
        return torch.jit.script(TracedModel(graphs))  # type: ignore[no-any-return]

    def shard_checkpoint(self, serialize_path: str | None = None) -> list[dict[str, Tensor]]:
        assert self._load is not None
        weights = {name: tensor.contiguous() for name, tensor in self._load().items()}
        if serialize_path is not None:
            directory = Path(serialize_path)
            directory.mkdir(parents=True, exist_ok=True)
            for rank in range(self._ranks):
                save_file(weights, directory / f"tp{rank}_sharded_checkpoint.safetensors")
        return [weights] * self._ranks
