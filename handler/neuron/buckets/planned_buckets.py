"""The buckets by which an endpoint counts padding. On the CPU: those of the Neuron line that it is planned for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.buckets.compiled_buckets import CompiledBuckets, compiled_buckets
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import lookup
from handler.neuron.lines.cpu import CPU

# The instance that is planned for if none is configured: the largest one that SageMaker hosts.
LARGEST: Final = "trn2.48xlarge"


def planned_buckets(plan: EnginePlan, config: EndpointConfig, length: int, sequences: int) -> CompiledBuckets | None:
    """The buckets of a plan; None if tokens cannot be counted by them.

    :param length, sequences: the engine's max_model_len and max_num_seqs.
    """
    if plan.line != CPU.name:
        return compiled_buckets(plan)
    from handler.neuron.planning.planner import make_plan

    config = replace(config, line=None, max_model_len=length, max_num_seqs=sequences)
    planned = make_plan(config, None, lookup(config.instance or LARGEST)).plan
    return None if planned is None else compiled_buckets(planned)
