"""The names a model is served by."""

from __future__ import annotations

import time
from collections.abc import Sequence

from handler.errors import ModelNotFound


def check_model(asked: str | None, served: Sequence[str]) -> None:
    """A request may leave the model out or send "", as SageMaker's OpenAI path passes on.

    :raises ModelNotFound: it names another one.
    """
    if asked and asked not in served:
        raise ModelNotFound(asked, tuple(served))


def model_list(served: Sequence[str], max_model_len: int) -> dict[str, object]:
    """OpenAI's list of models. `max_model_len` is in tokens."""
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "neuron-endpoint",
                "root": served[0],
                "parent": None,
                "max_model_len": max_model_len,
            }
            for name in served
        ],
    }
