"""A stub engine: a vLLM worker that computes nothing and gives each scheduled request its next token in every step.

Everything else is real: the core process, its sockets and messages, the scheduler, chunked prefill. So the benchmark
measures the front ends. Both sides get it by the same engine argument, `worker_cls` (`--worker-cls
benchmarks.serving.stub_worker.StubWorker`; `SM_VLLM_WORKER_CLS`), with this project's directory on PYTHONPATH.

A request's `seed` is the rate: that many steps a second while it runs, the lowest of those that run together; none
means as fast as vLLM's scheduler goes. Token n of any reply is the n-th of the tokenizer's plain words, round and
round, so that a reply's text is known. Written for vLLM 0.16 (vllm/v1/worker/worker_base.py).
"""

from __future__ import annotations

import time
from typing import Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import WorkerBase

from benchmarks.serving.stub_pace import StubPace, StubProgress, plain_words


class StubWorker(WorkerBase):  # type: ignore[misc]  # vLLM is untyped
    """The interface that vLLM's executor needs, without a device, weights or a KV cache."""

    def init_device(self) -> None:
        self._requests: dict[str, StubProgress] = {}
        self._pace = StubPace()
        self._words: list[list[int]] = []

    def load_model(self) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        self._words = [[token] for token in plain_words(cached_tokenizer_from_config(self.model_config))]

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        return {"stub": self._spec()}

    def determine_available_memory(self) -> int:
        """Returns memory for every sequence at its maximum length, so that no sequence waits for blocks."""
        blocks = -(-self.model_config.max_model_len // self.cache_config.block_size) + 1
        return int(self._spec().page_size_bytes * blocks * (self.scheduler_config.max_num_seqs + 1))

    def _spec(self) -> FullAttentionSpec:
        return FullAttentionSpec(
            block_size=self.cache_config.block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16
        )

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        pass

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        pass

    def compile_or_warm_up_model(self) -> None:
        pass

    def execute_dummy_batch(self) -> None:
        pass

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Runs one step. Returns after its time has passed."""
        requests = self._requests
        for name in scheduler_output.finished_req_ids:
            requests.pop(name, None)
        for new in scheduler_output.scheduled_new_reqs:
            rate_of_request = new.sampling_params.seed if new.sampling_params else None
            requests[new.req_id] = StubProgress(
                len(new.prompt_token_ids or ()) - new.num_computed_tokens, rate_of_request
            )
        names: list[str] = []
        sampled: list[list[int]] = []
        rate: float | None = None
        words = self._words
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            request = requests[name]
            names.append(name)
            request.missing -= tokens
            if request.missing > 0:  # a part of its prompt
                sampled.append([])
            else:
                request.missing = 0
                sampled.append(words[request.made % len(words)])
                request.made += 1
            if request.rate is not None and (rate is None or request.rate < rate):
                rate = request.rate
        wait_s = self._pace.wait_s(time.monotonic(), rate)
        if wait_s > 0:
            time.sleep(wait_s)
        return ModelRunnerOutput(names, {name: index for index, name in enumerate(names)}, sampled)
