"""The warm-up: generates the first tokens of an engine before the endpoint is ready.

On CPU the first sampled (not greedy) request takes 15 to 34 s, because vLLM then compiles its sampler, unless it runs
in eager mode (`handler/neuron/lines/cpu.py`). On Neuron the first request loads graphs. So the warm-up decodes with
greedy and with random sampling, one request at a time and several in a batch, before /ping answers 200. Where nothing
is compiled, the batch alone does: each pass takes as long as a client's. Each of its requests keeps the plan's limits,
as a client's must: the sampling that the device supports, and the lengths.
"""

from __future__ import annotations

import threading
import wave
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO

from handler.engine.api_routes import TRANSCRIBE, Route
from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, Sampling, StopReason
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.generation.sampling_check import supported
from handler.errors import ClientError, EndpointError
from handler.neuron.engine_plan import EnginePlan

TOKENS = 2  # of a request: one of the prefill, one of a decode step. A large model takes most of a second for each.
GREEDY = Sampling(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
SAMPLED = Sampling(max_tokens=TOKENS, temperature=0.8, top_p=0.9, top_k=20, ignore_eos=True)
PLAIN_SAMPLED = Sampling(max_tokens=TOKENS, temperature=1.0, ignore_eos=True)
ROUNDS: tuple[tuple[Sampling, ...], ...] = (
    (GREEDY,),
    # The sampler sees the same shapes in a prefill and in a decode step.
    (replace(SAMPLED, max_tokens=1),),
    (replace(PLAIN_SAMPLED, max_tokens=1),),
    (SAMPLED, SAMPLED, PLAIN_SAMPLED, GREEDY),
)

PROMPT = 4  # tokens
SOUND_RATE = 16_000  # samples a second, which is also their number

# What vLLM can be asked to pool, the usual first (vllm/tasks.py, 0.16).
POOLING = ("embed", "classify", "token_embed", "token_classify")


@dataclass(slots=True)
class _Outcome:
    """A sink that waits for the end of a request and counts its tokens."""

    done: threading.Event = field(default_factory=threading.Event)
    tokens: int = 0
    error: EndpointError | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.tokens += len(token_ids)
        if finish_reason is not None:
            self.done.set()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self.done.set()

    def wait(self, timeout: float, what: str) -> int:
        """Waits for the end of the request, and returns the number of its tokens."""
        if not self.done.wait(timeout):
            raise TimeoutError(f"no {what} within {timeout:g} s")
        if self.error is not None:
            raise self.error
        return self.tokens


def rounds(plan: EnginePlan) -> Sequence[tuple[Sampling, ...]]:
    """What the warm-up of an engine with this plan asks for."""
    return ROUNDS[-1:] if plan.line == "cpu" and plan.env.get("TORCHDYNAMO_DISABLE") == "1" else ROUNDS


def warm_up(engine: Engine, plan: EnginePlan, timeout: float = 1800.0) -> int:
    """Generates tokens with every kind of sampling, and returns how many.

    :param plan: the engine's.
    :param timeout: seconds for each round. The first round on Neuron may load large graphs.
    :raises EndpointError: a warm-up request failed.
    :raises TimeoutError: a round did not end in time.
    """
    if TRANSCRIBE in engine.traits.tasks:
        _transcribe(engine, timeout)
    if not engine.traits.generates:
        return _pool(engine, timeout) if engine.traits.pooling else 0
    model = engine.adapter_names[0] if engine.adapters is not None and engine.adapters.required else None
    prompt = [min(1, engine.prompts.vocab_size - 1)] * prompt_length(engine.limits)
    tokens = 0
    for number, samplings in enumerate(rounds(plan)):
        outcomes = [_Outcome() for _ in samplings]
        for index, (sampling, outcome) in enumerate(zip(samplings, outcomes, strict=True)):
            kept = within(sampling, engine.limits)
            generation = Generation(f"warm-up-{number}-{index}", prompt, kept, stream=False, model=model)
            engine.loop.call(engine.request(generation, outcome).begin)
        tokens += sum(outcome.wait(timeout, "warm-up token") for outcome in outcomes)
    return tokens


def prompt_length(limits: RequestLimits) -> int:
    """The tokens of a prompt: `PROMPT`, or as many as leave room for one token of output."""
    return max(1, min(PROMPT, limits.max_prompt or PROMPT, limits.max_model_len - 1))


def within(sampling: Sampling, limits: RequestLimits) -> Sampling:
    """The sampling without what the plan's engine does not support, and with as many tokens as fit."""
    room = limits.max_model_len - prompt_length(limits)
    most = min(sampling.max_tokens or room, room, limits.max_output or room)
    return replace(supported(sampling, limits.sampling), max_tokens=most)


def _transcribe(engine: Engine, timeout: float) -> None:
    """One transcription, of silence. Without a decoder there is none, and each request gets an error that says so."""
    sound = BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, SOUND_RATE, 0, "NONE", ""))
        file.writeframes(bytes(2 * SOUND_RATE))
    body = {"file": sound.getvalue(), "max_completion_tokens": PROMPT}
    with suppress(ClientError):
        _serve(engine, Route.TRANSCRIPTIONS, body).wait(timeout, "transcription")


def _pool(engine: Engine, timeout: float) -> int:
    """The warm-up of an engine that generates no text: one request with one token, and one with several."""
    task = next((each for each in POOLING if each in engine.traits.tasks), None)
    for length in (1, min(PROMPT, engine.limits.max_model_len)):
        body = {"input": [min(1, engine.prompts.vocab_size - 1)] * length, "task": task}
        _serve(engine, Route.POOLING, body).wait(timeout, "pooled output")
    return 0


def _serve(engine: Engine, route: Route, body: Mapping[str, object]) -> _Outcome:
    """Begins a request to vLLM's serving classes."""
    prepared, outcome = engine.require_serving().request(route, body, {}), _Outcome()
    engine.loop.call(engine.serving_request(prepared, outcome, lambda whole: None).begin)
    return outcome
