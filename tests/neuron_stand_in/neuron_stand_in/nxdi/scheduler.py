"""One prefill a step, never beside a decode (vllm-project/vllm-neuron, core/scheduler.py)."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class OnePrefillScheduler(Scheduler):  # type: ignore[misc]  # vLLM is untyped
    """vLLM's scheduler, shown one waiting request and no running one, or the running ones alone."""

    running: list[Any]

    def schedule(self) -> Any:
        held_back = []
        while self.waiting:
            held_back.append(self.waiting.pop_request())
        running: list[Any] = []
        if held_back and len(self.running) < self.max_num_running_reqs:
            self.waiting.add_request(held_back.pop(0))
            running, self.running = self.running, []
        output = super().schedule()
        self.running = self.running + running
        for request in held_back:
            self.waiting.add_request(request)
        return output
