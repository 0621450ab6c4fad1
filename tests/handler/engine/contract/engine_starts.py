"""Starts the installed vLLM through the contract, as `serve` does, and collects what a request gets of it."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import sample_model
from handler.config.loading.config_loader import load
from handler.engine.engine import Engine
from handler.engine.engine_request import EngineRequest
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Generation, Position, Sampling, StopReason
from handler.engine.launch import launch
from handler.errors import EndpointError
from handler.model.model_source import Model
from handler.startup.checked_plan import checked_plan, use_environment, with_model
from tests.handler.waiting import WITHIN

NAMES = itertools.count()
SLOTS = 4
# Names the sample model in another form, such as an export.
MODEL = "CONTRACT_MODEL"
SETTINGS = {"SM_VLLM_MAX_MODEL_LEN": "512", "SM_VLLM_MAX_NUM_SEQS": str(SLOTS), "SM_VLLM_ENFORCE_EAGER": "true"}


class Collected:
    """A sink that keeps all it gets, and the log probabilities."""

    def __init__(self) -> None:
        self.text, self.ids, self.pushes = "", list[int](), 0
        self.finish: tuple[str | None, StopReason] = (None, None)
        self.error: EndpointError | None = None
        self.scores: list[Position] = []
        self.prompt_scores: Sequence[Position | None] | None = None
        self.begun, self.done = threading.Event(), threading.Event()

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.text, self.ids, self.pushes = self.text + text, [*self.ids, *token_ids], self.pushes + 1
        self.begun.set()
        if finish_reason is not None:
            self.finish = finish_reason, stop_reason
            self.done.set()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self.begun.set()
        self.done.set()

    def receive(self, tokens: Sequence[Position], prompt: Sequence[Position | None] | None) -> None:
        self.scores += tokens
        self.prompt_scores = prompt or self.prompt_scores


class StartedEngine:
    """An engine over the sample model, on a CPU, or on the line of the environment.

    :param public: by vLLM's public interface alone, as a version that is not known.
    """

    def __init__(self, *, public: bool = False) -> None:
        self.model = Path(os.environ.get(MODEL) or sample_model.path())
        self.loop = LoopThread.start("engine")
        config = load({**os.environ, **SETTINGS}, model=str(self.model))
        plan = checked_plan(config)
        use_environment(plan)
        plan = with_model(plan, Model(str(self.model), ("sample",), 0))
        proven: AbstractContextManager[object] = nullcontext()
        if public:
            proven = patch("handler.engine.v1.accelerators.PROVEN", {})
        with proven:
            self.engine: Engine = launch(plan, config, self.loop)

    def require(self, *parameters: str) -> None:
        """Skips a test of sampling parameters that the line does not have. A request with them is a 400."""
        for parameter in parameters:
            if not self.engine.limits.sampling.supports(parameter):
                pytest.skip(f"the line has no {parameter}")

    def prompt(self, question: str) -> list[int]:
        return self.engine.prompts.chat([{"role": "user", "content": question}])

    def begin(
        self, prompt: list[int], *, stream: bool = False, scored: bool = False, apart: bool = False, **sampling: Any
    ) -> tuple[EngineRequest, Collected]:
        """:param sampling: fields of `Sampling`. Greedy, if it has no temperature."""
        sink = Collected()
        asked = Sampling(**{"temperature": 0.0, **sampling})
        generation = Generation(
            f"contract-{next(NAMES)}", prompt, asked, stream, scores=sink.receive if scored else None, apart=apart
        )
        request = self.engine.request(generation, sink)
        self.engine.loop.call(request.begin)
        return request, sink

    def answer(self, prompt: list[int], **asked: Any) -> Collected:
        """As `begin`, after the end of the request."""
        _, sink = self.begin(prompt, **asked)
        assert sink.done.wait(WITHIN), "it has not ended"
        return sink
