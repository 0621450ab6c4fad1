"""A double of `transformers_neuronx.fused_speculation`: a draft's tokens, accepted while the target has the same.

Interface: aws-neuron/transformers-neuronx, fused_speculation.py (what the class asserts of draft and target), and what
vLLM 0.9.1 calls (model_executor/model_loader/neuron.py). An EAGLE draft is computed as a draft model is.
"""

from functools import partial

import torch
from compiled_llama import speculated

from transformers_neuronx.config import GenerationConfig
from transformers_neuronx.llama.model import LlamaForSampling


class FusedSpeculativeDecoder(torch.nn.Module):
    """:param k: how many tokens the draft proposes."""

    def __init__(self, draft: LlamaForSampling, target: LlamaForSampling, k: int) -> None:
        super().__init__()
        for model in (draft, target):
            assert model.neuron_config.on_device_embedding is True
            assert model.neuron_config.on_device_generation is not None
        assert draft.config.vocab_size == target.config.vocab_size
        assert draft.tp_degree == target.tp_degree
        self._draft, self._target, self._k = draft, target, k

    def to_neuron(self) -> None:
        """The two models are compiled already. The real class compiles a graph of both."""

    def update_generation_config(self, generation_config: GenerationConfig) -> None:
        for model in (self._draft, self._target):
            model.update_generation_config(generation_config)

    def speculative_iteration(
        self, input_ids: torch.Tensor, cache_ids: torch.Tensor, start_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next tokens of each row, k + 1 of them, and how many are the target's. A prompt gets one."""
        if bool((cache_ids.min(dim=-1).values == 0).any()):
            self._draft(input_ids, cache_ids, start_ids)
            answers = self._target(input_ids, cache_ids, start_ids).view(-1, 1)
            return answers, torch.ones_like(answers)
        draft, target = (partial(_next, model, start_ids) for model in (self._draft, self._target))
        return speculated(draft, target, input_ids, cache_ids, self._k)


def _next(model: LlamaForSampling, slots: torch.Tensor, ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    tokens: torch.Tensor = model(ids, at, slots)
    return tokens
