"""Checks settings that do not work with several front ends (HTTP processes)."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

FIELD = "front_ends"
VARIABLE = "SAGEMAKER_MODEL_SERVER_WORKERS"


def problems(config: EndpointConfig) -> Iterator[SettingError]:
    """Front ends share one vLLM engine. Without it each process would load the model, and the devices hold one."""
    if config.front_ends > 1 and config.engine == "none":
        problem = "with ENDPOINT_ENGINE=none the model's own code holds the model, and each process would load it"
        yield SettingError(config.source(FIELD).name or VARIABLE, problem, "Remove it, or set it to 1.")
