"""What the engine's core may have at the same time, from the settings and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.engine_plan import EnginePlan

# An eighth of the slots is free of further sequences. As many first sequences wait inside the core, so that it never
# makes a step with a free slot while they are on their way.
RESERVED_PART: Final = 8


# Prompt tokens that vLLM computes in one step, if nothing is set.
STEP_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True)
class PaceLimit:
    """How much may be prefilled at the same time: this many requests, or more with at most this many prompt tokens.

    :param step: the prompt tokens of one step of the engine. What enters beyond them waits in the core, before all that
        comes later.
    """

    requests: int
    tokens: int
    step: int = STEP_TOKENS


# On a CPU, 128 prompt tokens take about as long as one decode step. So 128 are computed while 128 are queued.
MIXED: Final = PaceLimit(2, 256)
ONE_BY_ONE: Final = PaceLimit(1, 0)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What the core may have at the same time.

    :param slots: the sequences that it decodes.
    :param share: the sequences of one request.
    :param reserved: slots that only first sequences take.
    :param pace: prompts in prefill. None: no limit.
    """

    slots: int
    share: int
    reserved: int
    pace: PaceLimit | None = None

    @property
    def first(self) -> int:
        """The sequences that the core has, so that one more first sequence waits outside."""
        return self.slots + max(1, self.slots // RESERVED_PART)


def pace_limit(config: EndpointConfig, plan: EnginePlan) -> PaceLimit | None:
    """The limit of a configuration. None: prompts are admitted as they arrive."""
    default = ONE_BY_ONE if plan.line.startswith(("nxdi", "fork")) else MIXED
    if config.prefill_tokens == 0:
        return None
    step = plan.engine_args.get("max_num_batched_tokens")
    tokens = default.tokens if config.prefill_tokens is None else config.prefill_tokens
    return PaceLimit(default.requests, tokens, step if isinstance(step, int) else STEP_TOKENS)


def queue_limits(config: EndpointConfig, plan: EnginePlan, slots: int) -> QueueLimits:
    """The limits of a configuration. Nobody shares the slots of a batch transform job.

    :param slots: the sequences that the engine decodes at the same time.
    """
    part = config.slot_share or (1.0 if config.batch_transform else 0.5)
    reserved = 0 if part == 1.0 or slots == 1 else max(1, slots // RESERVED_PART)
    return QueueLimits(slots, max(1, int(slots * part)), reserved, pace_limit(config, plan))
