"""Translates `SM_ON_*`, the variables of optimum-neuron's image.

There `SM_ON_BATCH_SIZE=4` becomes `optimum-cli neuron serve --batch_size 4`.

Source: huggingface/optimum-neuron, docker/vllm/Dockerfile (the entry point) and optimum/commands/neuron/serve.py (the
arguments; those it does not know go on to vLLM). There an empty value is a flag that is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, assign, unused
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import unknown
from handler.config.dialects.sagemaker import with_prefix
from handler.errors import SettingError

PREFIX = "SM_ON_"
FIELDS: Mapping[str, str] = {
    "model": "model",
    "served_model_name": "served_model_name",
    "tensor_parallel_size": "tensor_parallel_size",
    "batch_size": "max_num_seqs",
    "sequence_length": "max_model_len",
}
TASK, NON_CACHED = "task", "allow_non_cached_model"


def reads(name: str) -> bool:
    return name.startswith(PREFIX)


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: the argument is unknown, or the value does not fit.
    """
    argument = engine.canonical(name.removeprefix(PREFIX))
    if argument in FIELDS:
        return [assign(FIELDS[argument], value, name)] if value.strip() else []
    if argument == NON_CACHED:
        return [unused(name, "this endpoint always compiles a model that is in no cache")]
    if argument == TASK:
        if value in {"", "generate"}:
            return []
        raise SettingError(name, f"'{value[:80]}' is not a task of this endpoint, which generates text", "Remove it.")
    if not engine.is_known(argument):
        known = [other.upper() for other in (*engine.names(), *FIELDS, TASK, NON_CACHED)]
        raise unknown(name, argument.upper(), known, PREFIX, "an argument of optimum-neuron or vLLM")
    if not value.strip():
        return engine.translate(argument, True, name) if engine.is_flag(argument) else []
    return with_prefix(PREFIX, name, value)
