"""The names a model is served by."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from handler.errors import ModelNotFound


def check_model(asked: str | None, served: Sequence[str]) -> None:
    """A request may leave the model out or send "", as SageMaker's OpenAI path passes on.

    :raises ModelNotFound: it names another one.
    """
    if asked and asked not in served:
        raise ModelNotFound(asked, tuple(served))


def model_list(served: Sequence[str], max_model_len: int, adapters: Sequence[str] = ()) -> dict[str, Any]:
    """OpenAI's list of models.

    :param served: the model's own names.
    :param max_model_len: tokens.
    :param adapters: names of adapters, whose parent the model is.
    """
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "neuron-endpoint",
                "root": name if name in adapters else served[0],
                "parent": served[0] if name in adapters else None,
                "max_model_len": max_model_len,
            }
            for name in (*served, *adapters)
        ],
    }
