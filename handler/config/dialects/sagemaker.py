"""`SM_VLLM_*`, the names of the AWS vLLM image, and the variables of SageMaker itself that concern us.

That image turns `SM_VLLM_MAX_NUM_SEQS=64` into `--max-num-seqs 64`, repeats JSON lists, and drops `false`, which leaves
on what was switched off. Here `false` is false.
"""

from __future__ import annotations

from handler.config.assignment import Assignment, assign
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown

PREFIX = "SM_VLLM_"
# SageMaker's own variables -> our field, and its toolkits' for the number of processes. The last four come with a batch
# transform job.
FIELDS = {
    "SAGEMAKER_BIND_TO_PORT": "port",
    "SAGEMAKER_SAFE_PORT_RANGE": "safe_port_range",
    "SAGEMAKER_MODEL_SERVER_WORKERS": "front_ends",
    "SAGEMAKER_MULTI_MODEL": "multi_model",
    "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "enable_sessions",
    "SAGEMAKER_SESSIONS_EXPIRATION": "session_expiration",
    "SAGEMAKER_BATCH": "batch_transform",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "max_payload_mb",
    "SAGEMAKER_BATCH_STRATEGY": "batch_strategy",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "max_concurrent_transforms",
}
# Its `model/` is the model when nothing else names one; read after everything else.
BASE = "SAGEMAKER_BASE_DIR"


def reads(name: str) -> bool:
    return name.startswith(PREFIX) or name in FIELDS


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: no engine argument, or a value that cannot be."""
    if name in FIELDS:
        return [assign(FIELDS[name], value, name)]
    return with_prefix(PREFIX, name, value)


def with_prefix(prefix: str, name: str, value: str) -> list[Assignment]:
    """An engine argument behind a prefix; a near miss is named with the prefix on it.

    :raises SettingError: no engine argument, or a value that cannot be.
    """
    argument = name.removeprefix(prefix)
    if engine.is_known(argument):
        return engine.translate(argument, value, name)
    known: list[str] = [other.upper() for other in engine.names()]
    raise unknown(name, argument, known, prefix, "an engine argument of vLLM's")
