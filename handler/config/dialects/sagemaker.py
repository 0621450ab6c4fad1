"""Translates `SM_VLLM_*`, the variables of the AWS vLLM image, and SageMaker's own variables.

That image turns `SM_VLLM_MAX_NUM_SEQS=64` into `--max-num-seqs 64` and repeats JSON lists. It drops `false`, so that a
flag stays on that a user switched off. Here `false` means false.
"""

from __future__ import annotations

from handler.config.assignment import Assignment, assign, converted
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown
from handler.config.values import to_int
from handler.errors import SettingError
from handler.json_value import Json

PREFIX = "SM_VLLM_"
# Variables of SageMaker and of the AWS vLLM images -> field. A batch transform job sets the last four.
FIELDS = {
    "SAGEMAKER_BIND_TO_PORT": "port",
    "SAGEMAKER_SAFE_PORT_RANGE": "safe_port_range",
    "SAGEMAKER_MULTI_MODEL": "multi_model",
    "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "enable_sessions",
    "SAGEMAKER_SESSIONS_EXPIRATION": "session_expiration",
    "STANDARD_AUTO_INSTALL_REQ": "requirements",
    "SAGEMAKER_BATCH": "batch_transform",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "max_payload_mb",
    "SAGEMAKER_BATCH_STRATEGY": "batch_strategy",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "max_concurrent_transforms",
}
# The number of serving processes, of SageMaker's toolkits.
WORKERS = "SAGEMAKER_MODEL_SERVER_WORKERS"
# The subdirectory `model/` of this directory is the model if nothing else names one. Read after everything else.
BASE = "SAGEMAKER_BASE_DIR"


def reads(name: str) -> bool:
    return name.startswith(PREFIX) or name in FIELDS or name == WORKERS


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: there is no such engine argument, or the value does not fit.
    """
    if name == WORKERS:
        return one_process(name, value)
    if name in FIELDS:
        return [assign(FIELDS[name], value, name)]
    return with_prefix(PREFIX, name, value)


def one_process(setting: str, value: Json) -> list[Assignment]:
    """Accepts one serving process.

    :raises SettingError: the value is another number, or no number.
    """
    if converted(to_int, value, setting) != 1:
        fix = "Remove it, or set it to 1. For more requests add instances, or copies of the inference component."
        raise SettingError(setting, "one process serves the one engine, so it can only be 1", fix)
    return []


def with_prefix(prefix: str, name: str, value: str) -> list[Assignment]:
    """Translates an engine argument that follows a prefix.

    :raises SettingError: there is no such engine argument, or the value does not fit.
    """
    argument = name.removeprefix(prefix)
    if engine.is_known(argument):
        return engine.translate(argument, value, name)
    known: list[str] = [other.upper() for other in engine.names()]
    raise unknown(name, argument, known, prefix, "an engine argument of vLLM")
