"""In the place of vLLM's sampler: a request's top_k, top_p and temperature, and nothing else that it asks for.

Penalties, seeds, min_p, biases, masks and logprobs do not reach the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.sampler import Sampler

from neuron_stand_in.device_draw import draw


class DeviceSampler(Sampler):  # type: ignore[misc]  # vLLM is untyped
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = config

    def forward(self, logits: torch.Tensor, sampling_metadata: Any, *_: Any, **__: Any) -> SamplerOutput:
        rows = logits.shape[0]

        def asked(name: str, otherwise: float) -> torch.Tensor:
            given = getattr(sampling_metadata, name)
            return torch.full((rows,), otherwise) if given is None else given[:rows]

        # vLLM leaves the tensors out where no request of the batch needs them: all greedy has no temperature.
        top_k, top_p, temperature = asked("top_k", 0).long(), asked("top_p", 1.0), asked("temperature", 0.0)
        tokens = draw(logits, top_k, top_p.float(), temperature.float(), self.config)
        return SamplerOutput(sampled_token_ids=tokens.to(torch.int32).unsqueeze(-1), logprobs_tensors=None)
