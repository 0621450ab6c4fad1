"""Drops client-side fields that do not concern the model from bodies of /invocations.

A field that is almost a known one is rejected as a misspelling. These fields are sent on purpose. litellm's SageMaker
providers pass their own settings on (llms/sagemaker, 1.106: `sagemaker_base_url`, `model_id` for the inference
component), and in a chat the endpoint's name as the model's. The containers of TGI and LMI accept both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.engine.engine import Engine

CLIENT_FIELDS: Final = frozenset({"sagemaker_base_url", "model_id"})


def drop_ignored_fields(document: Mapping[str, Any], engine: Engine) -> Mapping[str, Any]:
    """The body without these fields. An unknown model name is dropped too, unless adapters are selected by name."""
    kept = {name: value for name, value in document.items() if name not in CLIENT_FIELDS}
    model = kept.get("model")
    if isinstance(model, str) and engine.adapters is None and model not in engine.served_names:
        del kept["model"]
    parameters = kept.get("parameters")
    if isinstance(parameters, dict) and CLIENT_FIELDS & parameters.keys():
        kept["parameters"] = {name: value for name, value in parameters.items() if name not in CLIENT_FIELDS}
    return kept
