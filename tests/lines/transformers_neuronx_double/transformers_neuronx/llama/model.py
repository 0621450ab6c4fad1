"""A double of `transformers_neuronx.llama.model`: a Llama that is computed on the CPU in the shapes that were compiled.

Interface: AWS Neuron documentation, "Transformers NeuronX Developer Guide for Continuous Batching", and what vLLM 0.9.1
calls (model_executor/model_loader/neuron.py, worker/neuron_model_runner.py). The compiler's cache has the layout of
"Neuron Persistent Cache".
"""

import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from compiled_llama import COMPILES, Graphs, Slots, weights_of
from transformers import AutoConfig

from transformers_neuronx.config import GenerationConfig, NeuronConfig

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CACHE = "NEURON_COMPILE_CACHE_URL"


class LlamaForSampling(torch.nn.Module):
    """A model of its own weights, of `batch_size` sequences and `n_positions` tokens."""

    @classmethod
    def from_pretrained(cls, directory: str, **shape: Any) -> "LlamaForSampling":
        return cls(directory, **shape)

    def __init__(
        self,
        directory: str,
        *,
        tp_degree: int,
        amp: str,
        neuron_config: NeuronConfig,
        context_length_estimate: Sequence[int],
        n_positions: Sequence[int],
        batch_size: int,
    ) -> None:
        super().__init__()
        assert neuron_config.continuous_batching is not None
        assert neuron_config.continuous_batching.batch_size_for_shared_caches == batch_size
        self.config = AutoConfig.from_pretrained(directory)
        assert self.config.num_attention_heads % tp_degree == 0
        self.neuron_config, self.tp_degree = neuron_config, tp_degree
        self._directory, self._dtype, self._batch = directory, TYPES[amp], batch_size
        self._prompts, self._sequences = sorted(context_length_estimate), sorted(n_positions)
        self._sampling = neuron_config.on_device_generation
        self._compiled = f"{self.config.to_json_string()} {amp} {tp_degree} {batch_size} {vars(neuron_config)}"

    def to_neuron(self) -> None:
        """Compiles the graph of each bucket, or takes it from the compiler's cache. Loads the weights."""
        root = Path(os.environ.get(CACHE, "/var/tmp/neuron-compile-cache"), f"neuronxcc-{version('neuronx-cc')}")
        for name, lengths in (("context", self._prompts), ("token", self._sequences)):
            for length in lengths:
                graph = hashlib.sha256(f"{self._compiled} {name} {length}".encode()).hexdigest()[:20]
                self._compile(root / f"MODULE_{graph}+{graph[:8]}")
        sampling = self._sampling
        shape = SimpleNamespace(
            on_device_sampling=sampling is not None,
            max_topk=min((sampling and sampling.global_top_k) or 256, self.config.vocab_size),
            max_batch_size=self._batch + 1,
            sequence_length=self._sequences[-1],
            torch_dtype=self._dtype,
        )
        prompt, token = torch.Size([1, self._prompts[-1]]), torch.Size([self._batch, 1])
        graphs = Graphs(self.config, shape, prompt, token)
        graphs.initialize([weights_of(self._directory, self._dtype)], torch.tensor([0]))
        self._slots = Slots(graphs, self._prompts, self._batch)

    def _compile(self, module: Path) -> None:
        if (module / "model.done").is_file():
            return
        print(COMPILES, flush=True)
        module.mkdir(parents=True)
        (module / "model.neff").write_bytes(b"stands for a compiled graph")
        (module / "model.hlo_module.pb").write_bytes(b"stands for a graph")
        (module / "compile_flags.json").write_text("[]")
        (module / "model.done").touch()

    def update_generation_config(self, generation_config: GenerationConfig) -> None:
        self._sampling = generation_config

    def forward(self, input_ids: torch.Tensor, cache_ids: torch.Tensor, start_ids: torch.Tensor) -> torch.Tensor:
        """The next token of each row, or its logits. A row with several tokens, or at position 0, is a prompt."""
        sampling = self._sampling

        def parameters(row: int) -> Sequence[float]:
            slot = int(start_ids.flatten()[row])
            if sampling is None:
                return 1, 1.0, 1.0
            return sampling.top_k[slot], sampling.top_p[slot], sampling.temperature[slot]

        answers: torch.Tensor = self._slots(input_ids, cache_ids, start_ids, parameters)
        return answers if sampling is not None else answers[:, -1]
