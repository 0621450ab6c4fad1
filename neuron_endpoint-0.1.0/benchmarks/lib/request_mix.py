"""The workload of one block of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

Api = Literal["chat", "completion"]
EngineKind = Literal["model", "stub"]

PATHS: dict[Api, str] = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}

# The number makes prompts differ, so that neither side lives on one cached prefix; both get the same ones.
PROMPT = "Question {index}: how does a program read numbers from a file, add them up, and print the result?"


@dataclass(frozen=True, slots=True)
class RequestMix:
    """A closed loop: `concurrency` slots, each sending its next request when the last one has ended."""

    api: Api = "chat"
    streamed: bool = True
    concurrency: int = 32
    requests: int = 192
    tokens: int = 64
    sentences: int = 1  # of the prompt; 16 are 400 to 640 tokens
    temperature: float = 0.0
    seconds: float | None = None  # after which no further request is begun, be there any left
    probed: bool = False  # /ping is asked 20 times a second meanwhile
    engine: EngineKind = "model"
    share: float | None = None  # of a core, that the HTTP process is held to (cpu_share.py)
    steps_per_s: int | None = None  # of the stub (stub_worker.py); None: as fast as it goes
    deadline_s: float = 180.0

    @property
    def path(self) -> str:
        return PATHS[self.api]

    @property
    def label(self) -> str:
        words = [self.api, "streamed" if self.streamed else "whole", f"c{self.concurrency}"]
        if self.sentences > 1:
            words.append("long prompt")
        if self.engine == "stub":
            rate = f"{self.steps_per_s} steps/s" if self.steps_per_s else "unpaced"
            words += [f"{self.tokens} tokens", "stub", rate]
        if self.share:
            words.append(f"held to {self.share:g} of a core")
        return " ".join([*words, "with /ping"] if self.probed else words)

    def body(self, index: int) -> bytes:
        """Returns the JSON of request number `index`. It forces exactly `tokens` tokens."""
        prompt = " ".join([PROMPT.format(index=index)] * self.sentences)
        document: dict[str, object] = {
            "model": "model",
            "max_tokens": self.tokens,
            "temperature": self.temperature,
            "ignore_eos": True,
            "stream": self.streamed,
        }
        if self.api == "chat":
            document["messages"] = [{"role": "user", "content": prompt}]
        else:
            document["prompt"] = prompt
        if self.steps_per_s is not None:
            document["seed"] = self.steps_per_s
        if self.streamed:
            document["stream_options"] = {"include_usage": True}
        return msgspec.json.encode(document)
