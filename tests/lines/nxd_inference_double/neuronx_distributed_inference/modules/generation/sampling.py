"""Sampling parameters of models with images, which this double does not have."""

from typing import Any


def prepare_sampling_params(*arguments: Any, **named: Any) -> Any:
    raise NotImplementedError
