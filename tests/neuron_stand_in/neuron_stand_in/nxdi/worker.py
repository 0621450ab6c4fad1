"""The worker and the model runner of the NxDI stand-in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from vllm.config import set_current_vllm_config
from vllm.v1.sample.logits_processor import LogitsProcessors

from neuron_stand_in.device_runner import DeviceRunner
from neuron_stand_in.device_worker import DeviceWorker
from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.nxdi.buckets import bucket_for, context_buckets, token_buckets
from neuron_stand_in.nxdi.load_or_compile import load_or_compile
from neuron_stand_in.nxdi.platform import NxdiStandInPlatform
from neuron_stand_in.settings import StandInSettings


class NxdiRunner(DeviceRunner):
    """Steps must fit a graph: a length that fits none ends the engine, as nothing catches it."""

    neuron_config: Mapping[str, Any] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.input_batch.logitsprocs = LogitsProcessors()  # so logit_bias, min_p and the mask of min_tokens are lost

    def sample_tokens(self, grammar_output: Any) -> Any:
        """No request has a generator, so a seed has no effect. A grammar masks its own row, whatever is beside it.

        vLLM 0.16 itself needs a GPU driver for a batch in which only some requests have one.
        """
        self.input_batch.generators.clear()
        return super().sample_tokens(grammar_output and for_all(grammar_output, self.input_batch.req_ids))

    def check_step(self, scheduler_output: Any) -> None:
        super().check_step(scheduler_output)
        new, cached = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
        if len(new) > 1 or (new and cached.req_ids):
            raise RuntimeError(f"a step of {len(new)} prefills and {len(cached.req_ids)} decodes has no graph")
        self.step_tokens(scheduler_output)

    def step_tokens(self, scheduler_output: Any) -> dict[str, list[int]]:
        """All sequences of a decode step take the bucket of the longest one.

        :raises ValueError: a length fits no graph.
        """
        new, cached = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
        found: dict[str, list[int]] = {}
        for request in new:
            length = len(request.prompt_token_ids) - request.num_computed_tokens
            bucket = bucket_for(length, 0, context_buckets(self.neuron_config), "context_encoding_model")
            found["prefill"] = [length, bucket]
        contexts = [computed + 1 for computed in cached.num_computed_tokens]
        if contexts:
            ahead = self.neuron_config["speculation_length"]
            bucket = bucket_for(max(contexts), ahead, token_buckets(self.neuron_config), "token_generation_model")
            found["decode"] = [sum(contexts), bucket * len(contexts)]
        return found


def for_all(grammar_output: Any, requests: Sequence[str]) -> Any:
    """A row for each request. A request without a grammar may have every token."""
    limited, mask = list(grammar_output.structured_output_request_ids), grammar_output.grammar_bitmask
    free = [name for name in requests if name not in limited]
    everything = np.full((len(free), mask.shape[1]), -1, dtype=mask.dtype)
    return type(grammar_output)([*limited, *free], np.concatenate([mask, everything]))


class NxdiStandInWorker(DeviceWorker):
    """Compiles or loads at the place where the real worker does: load_model, in the engine's process."""

    def init_device(self) -> None:
        super().init_device()
        NxdiStandInPlatform.runs_the_model = True
        with set_current_vllm_config(self.vllm_config):
            self.model_runner = NxdiRunner(self.vllm_config, torch.device("cpu"))

    def load_model(self) -> None:
        settings = StandInSettings.read(os.environ)
        additional = self.asked.additional_config or {}
        loaded = load_or_compile(EngineShape.of(self.asked), additional, settings, os.environ)
        self.model_runner.neuron_config = loaded.neuron_config
        self.model_runner.sampling_config = loaded.neuron_config["on_device_sampling_config"]
        self.model_runner.settings = settings
        with set_current_vllm_config(self.vllm_config):
            self.model_runner.fill(loaded.tensors)
