"""What several front ends cannot go with, seen from the settings alone."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

FIELD = "front_ends"
VARIABLE = "SAGEMAKER_MODEL_SERVER_WORKERS"


def problems(config: EndpointConfig) -> Iterator[SettingError]:
    """They share vLLM's engine: where there is none, each would load the model, and the devices take one."""
    if config.front_ends > 1 and config.engine == "none":
        problem = "with ENDPOINT_ENGINE=none the model's own code holds the model, and each process would load it"
        yield SettingError(config.source(FIELD).name or VARIABLE, problem, "Leave it out, or set it to 1.")
