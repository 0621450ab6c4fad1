"""Checks a request's model name, and lists the served models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handler.engine.engine import Engine
from handler.errors import ModelNotFound

# An inference component's adapter, as SageMaker passes it on (aws/model-hosting-container-standards, sagemaker/lora).
ADAPTER_HEADER: Final = "X-Amzn-SageMaker-Adapter-Identifier"


def check_model(model: str | None, served: Sequence[str], field: str = "model") -> None:
    """Checks the model name of a request. It may be absent, or "", which SageMaker's OpenAI path sends.

    :raises ModelNotFound: no served model has this name.
    """
    if model and model not in served:
        raise ModelNotFound(model, tuple(served), field)


def without_unknown_model(document: Mapping[str, Any], engine: Engine) -> Mapping[str, Any]:
    """The body without a `model` that is not served, such as the endpoint's name, which litellm sends (1.106)."""
    model = document.get("model")
    chosen = not isinstance(model, str) or engine.adapters is not None or model in engine.served_names
    return document if chosen else {**document, "model": None}


def model_list(served: Sequence[str], max_model_len: int, adapters: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The entries of GET /v1/models.

    :param served: the model's own names.
    :param max_model_len: in tokens.
    :param adapters: the names of adapters, whose parent is the model.
    """
    return [
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
    ]
