"""A double of `neuronx_distributed_inference.models.llama.modeling_llama`: a Llama that is computed on the CPU.

Interface: AWS Neuron documentation, "NxD Inference" (compile, load), and what vLLM 0.9.1 calls
(model_executor/model_loader/neuronx_distributed.py). A model that is loaded reads its weights from the checkpoint that
it was compiled from, as NxD Inference does without `save_sharded_checkpoint`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from compiled_llama import COMPILES, Graphs, Slots, speculated, weights_of

from neuronx_distributed_inference.models.config import InferenceConfig, NeuronConfig

MODEL, DRAFT = "model.pt", "draft.pt"
GREEDY = (1.0, 1.0, 1.0)


class NeuronLlamaModel:
    """What a fused speculation names as the class of its draft."""


class NeuronLlamaForCausalLM(torch.nn.Module):
    """An application of NxD Inference.

    :param path: the checkpoint, or what was compiled, which has its own configuration.
    """

    _model_cls = NeuronLlamaModel

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

    @property
    def _draft(self) -> Any:
        """The draft of a fused speculation, or None."""
        return getattr(self.config, "fused_spec_config", None)

    def compile(self, directory: str) -> None:
        print(COMPILES, flush=True)
        self.config.save(Path(directory))
        self._script(self.config).save(Path(directory, MODEL))
        if self._draft is not None:
            self._script(self._draft.draft_config).save(Path(directory, DRAFT))

    def _script(self, config: Any) -> Any:
        neuron = self.config.neuron_config
        sampling = neuron.on_device_sampling_config
        shape = SimpleNamespace(
            on_device_sampling=bool(sampling),
            max_topk=min(getattr(sampling, "global_topk", 256), config.vocab_size),
            max_batch_size=neuron.batch_size + 1,
            sequence_length=neuron.seq_len,
            torch_dtype=self._dtype,
        )
        prompt, token = (
            torch.Size([neuron.ctx_batch_size, neuron.max_context_length]),
            torch.Size([neuron.batch_size, 1]),
        )
        return torch.jit.script(Graphs(config, shape, prompt, token))

    def load(self, directory: str) -> None:
        """:raises FileNotFoundError, ValueError: nothing was compiled there."""
        if not Path(directory, MODEL).is_file():
            raise ValueError(f"no {MODEL} in {directory}")
        self._slots = self._loaded(Path(directory, MODEL), self.config._name_or_path)
        if self._draft is not None:
            self._draft_slots = self._loaded(Path(directory, DRAFT), self._draft.draft_model_path)

    def _loaded(self, file: Path, checkpoint: str) -> Slots:
        graphs = torch.jit.load(file)
        graphs.initialize([weights_of(checkpoint, self._dtype)], torch.tensor([0]))
        neuron = self.config.neuron_config
        return Slots(graphs, [neuron.max_context_length], neuron.batch_size)

    def forward(
        self,
        input_ids: torch.Tensor,
        *,
        position_ids: torch.Tensor,
        seq_ids: torch.Tensor,
        sampling_params: torch.Tensor,
        **others: Any,
    ) -> SimpleNamespace:
        def parameters(row: int) -> Sequence[float]:
            sampling = self.config.neuron_config.on_device_sampling_config
            fixed = sampling is not None and not sampling.dynamic and not sampling.do_sample
            return GREEDY if fixed else sampling_params[row].tolist()

        if self._draft is not None:
            return self._speculated(input_ids, position_ids, seq_ids, parameters)
        answers = self._slots(input_ids, position_ids, seq_ids, parameters)
        return SimpleNamespace(hidden_states=answers, logits=answers)

    def _speculated(
        self, ids: torch.Tensor, at: torch.Tensor, slots: torch.Tensor, sampling: Callable[[int], Sequence[float]]
    ) -> SimpleNamespace:
        """The tokens of each row, and its position behind those that hold."""
        if not bool(at[:, 0].any()):
            self._draft_slots(ids, at, slots, lambda row: GREEDY)
            tokens = self._slots(ids, at, slots, sampling).view(-1, 1)
            return SimpleNamespace(fused_outputs=[tokens, at.max(dim=1, keepdim=True).values + 1])
        tokens, counts = speculated(
            lambda tokens, places: self._draft_slots(tokens, places, slots, lambda row: GREEDY),
            lambda tokens, places: self._slots(tokens, places, slots, sampling),
            ids,
            at,
            self.config.neuron_config.speculation_length - 1,
        )
        return SimpleNamespace(fused_outputs=[tokens, at + counts])
