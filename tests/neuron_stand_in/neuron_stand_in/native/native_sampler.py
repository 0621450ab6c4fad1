"""Sampling on the native plugin: which parameters of a request count, by where and how tokens are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor import LogitBiasLogitsProcessor, MinPLogitsProcessor
from vllm.v1.sample.sampler import Sampler
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from neuron_stand_in.device_draw import MOST_TOP_K
from neuron_stand_in.device_runner import DeviceRunner
from neuron_stand_in.device_sampler import DeviceSampler
from neuron_stand_in.native.configuration import NativeConfiguration
from neuron_stand_in.native.prefill_buckets import compiled_buckets, padded

UNREAD = (LogitBiasLogitsProcessor, MinPLogitsProcessor)


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")


def drawing(given: Mapping[str, Any]) -> dict[str, Any]:
    """The device's draw for an `on_device_sampling_config`."""
    return {
        "dynamic": not _true(given.get("all_greedy", False)),
        "do_sample": False,
        "deterministic": _true(given.get("deterministic", False)),
        "global_topk": int(given.get("max_top_k", MOST_TOP_K)),
    }


class NativeDeviceSampler(DeviceSampler):
    """The device with synchronous scheduling: log probabilities come back."""

    def forward(self, logits: torch.Tensor, sampling_metadata: Any, *_: Any, **__: Any) -> SamplerOutput:
        output = super().forward(logits, sampling_metadata)
        wanted = sampling_metadata.max_num_logprobs
        if wanted is None:
            return output
        scores, tokens = self.compute_logprobs(logits), output.sampled_token_ids.squeeze(-1).to(torch.int64)
        return replace(output, logprobs_tensors=self.gather_logprobs(scores, max(wanted, 0), token_ids=tokens))


class NativeCpuSampler(Sampler):  # type: ignore[misc]  # vLLM is untyped
    """vLLM's sampler, which min_p and logit_bias do not reach."""

    def forward(self, logits: torch.Tensor, sampling_metadata: Any, *rest: Any, **named: Any) -> Any:
        own = sampling_metadata.logitsprocs
        for name in ("argmax_invariant", "non_argmax_invariant"):
            kept = [one for one in getattr(own, name) if not isinstance(one, UNREAD)]
            setattr(own, name, kept)
        return super().forward(logits, sampling_metadata, *rest, **named)


class NativeRunner(DeviceRunner):
    asked: NativeConfiguration | None = None

    def choose_sampler(self) -> None:
        """Call after the model is filled."""
        assert self.asked is not None
        if not self.asked.on_device:
            self.sampler = NativeCpuSampler()
            return
        config = drawing(self.asked.neuron.get("on_device_sampling_config") or {})
        self.sampler = DeviceSampler(config) if self.asked.async_scheduling else NativeDeviceSampler(config)

    def check_step(self, scheduler_output: Any) -> None:
        assert self.asked is not None
        if self.asked.cpu_compile:
            raise RuntimeError("native stand-in: VLLM_NEURON_CPU_COMPILE compiles graphs and runs none")
        super().check_step(scheduler_output)

    def step_tokens(self, scheduler_output: Any) -> dict[str, list[int]]:
        """Prompts, each padded to its bucket; contexts that decode reads, all of the longest one's; and sequences."""
        assert self.asked is not None
        buckets = compiled_buckets(self.asked)
        new = {request.req_id for request in scheduler_output.scheduled_new_reqs}
        scheduled = scheduler_output.num_scheduled_tokens
        prompts = [count for name, count in scheduled.items() if name in new or count > 1]
        found: dict[str, list[int]] = {}
        if prompts:
            found["prefill"] = [sum(prompts), sum(padded(count, buckets.tokens) for count in prompts)]
        if len(scheduled) > len(prompts):
            cached = scheduler_output.scheduled_cached_reqs
            computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            contexts = [computed[name] + 1 for name, count in scheduled.items() if name not in new and count == 1]
            bucket = padded(max(contexts), (*buckets.decode, self.asked.max_model_len))
            found["decode"] = [sum(contexts), bucket * len(contexts)]
            found["sequences"] = [len(contexts), padded(len(contexts), buckets.sequences)]
        return found

    def sample_tokens(self, grammar_output: Any) -> Any:
        assert self.asked is not None
        assert grammar_output is None or not self.asked.async_scheduling, "a grammar with asynchronous scheduling"
        return CPUModelRunner.sample_tokens(self, grammar_output)
