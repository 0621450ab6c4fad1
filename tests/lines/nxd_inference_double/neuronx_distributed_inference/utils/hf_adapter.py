"""A double of `neuronx_distributed_inference.utils.hf_adapter`."""

from collections.abc import Callable
from typing import Any

from transformers import AutoConfig


def load_pretrained_config(directory: str) -> Callable[[Any], None]:
    """Copies the model's own configuration into NxD Inference's."""
    return lambda config: vars(config).update(
        {**AutoConfig.from_pretrained(directory).to_dict(), "_name_or_path": directory}
    )
