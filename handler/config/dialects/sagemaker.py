"""Translates `SM_VLLM_*`, the variables of the AWS vLLM image.

That image turns `SM_VLLM_MAX_NUM_SEQS=64` into `--max-num-seqs 64` and repeats JSON lists. It drops `false`, so that a
flag stays on that a user switched off. Here `false` means false.
"""

from __future__ import annotations

from handler.config.assignment import Assignment
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown

PREFIX = "SM_VLLM_"
# The subdirectory `model/` of this directory is the model if nothing else names one. Read after everything else.
BASE = "SAGEMAKER_BASE_DIR"


def reads(name: str) -> bool:
    return name.startswith(PREFIX)


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: there is no such engine argument, or the value does not fit.
    """
    return with_prefix(PREFIX, name, value)


def with_prefix(prefix: str, name: str, value: str) -> list[Assignment]:
    """Translates an engine argument that follows a prefix.

    :raises SettingError: there is no such engine argument, or the value does not fit.
    """
    argument = name.removeprefix(prefix)
    if engine.is_known(argument):
        return engine.translate(argument, value, name)
    known: list[str] = [other.upper() for other in engine.names()]
    raise unknown(name, argument, known, prefix, "an engine argument of vLLM")
