"""A stand-in for neuronx_distributed_inference.models.config, which is not on PyPI: it takes NeuronConfig's keys as
keyword arguments and raises where a test scripts it to."""

from __future__ import annotations

from typing import Any

TAKEN: list[dict[str, Any]] = []


class NeuronConfig:
    def __init__(self, **keys: Any) -> None:
        TAKEN.append(keys)
        for value in keys.values():
            if isinstance(value, list):
                value.sort()  # As the real class does, in place.
        if keys.get("seq_len") == 666:
            raise AssertionError
        if keys.get("seq_len") == 667:
            raise ValueError("TP Degree must be evenly divisible by CP Degree")
        if keys.get("seq_len") == 668:
            raise RuntimeError("no Neuron runtime")
