"""A double of `neuronx_distributed_inference.models.llama.modeling_llama`: a Llama that is computed on the CPU.

Interface: AWS Neuron documentation, "NxD Inference" (compile, load), and what vLLM 0.9.1 calls
(model_executor/model_loader/neuronx_distributed.py). A model that is loaded reads its weights from the checkpoint that
it was compiled from, as NxD Inference does without `save_sharded_checkpoint`.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from compiled_llama import COMPILES, Graphs, Slots, weights_of

from neuronx_distributed_inference.models.config import InferenceConfig, NeuronConfig

MODEL = "model.pt"


class NeuronLlamaForCausalLM(torch.nn.Module):
    """An application of NxD Inference.

    :param path: the checkpoint, or what was compiled, which has its own configuration.
    """

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        return InferenceConfig

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        return NeuronConfig

    def __init__(self, path: str, config: InferenceConfig | None = None) -> None:
        super().__init__()
        self.config: Any = config or InferenceConfig.load(Path(path))
        self.config._name_or_path = getattr(self.config, "_name_or_path", "") or path

    @property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, str(self.config.neuron_config.torch_dtype).removeprefix("torch."))  # type: ignore[no-any-return]

    def compile(self, directory: str) -> None:
        print(COMPILES, flush=True)
        neuron = self.config.neuron_config
        self.config.save(Path(directory))
        sampling = neuron.on_device_sampling_config
        shape = SimpleNamespace(
            on_device_sampling=bool(sampling),
            max_topk=min(getattr(sampling, "global_topk", 256), self.config.vocab_size),
            max_batch_size=neuron.batch_size + 1,
            sequence_length=neuron.seq_len,
            torch_dtype=self._dtype,
        )
        prompt, token = (
            torch.Size([neuron.ctx_batch_size, neuron.max_context_length]),
            torch.Size([neuron.batch_size, 1]),
        )
        torch.jit.save(torch.jit.script(Graphs(self.config, shape, prompt, token)), Path(directory, MODEL))

    def load(self, directory: str) -> None:
        """:raises FileNotFoundError, ValueError: nothing was compiled there."""
        if not Path(directory, MODEL).is_file():
            raise ValueError(f"no {MODEL} in {directory}")
        graphs = torch.jit.load(Path(directory, MODEL))
        graphs.initialize([weights_of(self.config._name_or_path, self._dtype)], torch.tensor([0]))
        neuron = self.config.neuron_config
        self._slots = Slots(graphs, [neuron.max_context_length], neuron.batch_size)

    def forward(
        self,
        input_ids: torch.Tensor,
        *,
        position_ids: torch.Tensor,
        seq_ids: torch.Tensor,
        sampling_params: torch.Tensor,
        **others: Any,
    ) -> SimpleNamespace:
        answers = self._slots(input_ids, position_ids, seq_ids, lambda row: sampling_params[row].tolist())
        return SimpleNamespace(hidden_states=answers, logits=answers)
