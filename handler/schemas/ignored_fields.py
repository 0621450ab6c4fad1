"""What a client's body says that is not about the model: taken off at /invocations, where the address has said it.

Elsewhere an unknown field is refused, for it is a slip of the pen. These are no slips: litellm's SageMaker providers
send their own settings on (llms/sagemaker, 1.106: `sagemaker_base_url`, `model_id` for the inference component), and in
a chat the endpoint's name as the model's. TGI's and LMI's containers take both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.engine.engine import Engine

SETTINGS: Final = frozenset({"sagemaker_base_url", "model_id"})


def drop_ignored_fields(document: Mapping[str, Any], engine: Engine) -> Mapping[str, Any]:
    """The same body without them. The model's name stays where there are adapters: then it chooses one."""
    found = {name: value for name, value in document.items() if name not in SETTINGS}
    model = found.get("model")
    if isinstance(model, str) and engine.adapters is None and model not in engine.served_names:
        del found["model"]
    parameters = found.get("parameters")
    if isinstance(parameters, dict) and SETTINGS & parameters.keys():
        found["parameters"] = {name: value for name, value in parameters.items() if name not in SETTINGS}
    return found
