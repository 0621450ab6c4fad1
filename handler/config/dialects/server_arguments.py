"""Translates `SM_VLLM_*` and `SM_ON_*`: the arguments of the server that AWS's vLLM image and optimum-neuron's start.

AWS's image turns `SM_VLLM_MAX_NUM_SEQS=64` into `--max-num-seqs 64` and repeats JSON lists. It drops `false`, so that a
flag stays on that a user switched off. Here `false` means false. In optimum-neuron's image `SM_ON_BATCH_SIZE=4` becomes
`optimum-cli neuron serve --batch_size 4`, and an empty value is a flag that is set (huggingface/optimum-neuron,
docker/vllm/Dockerfile and optimum/commands/neuron/serve.py; arguments that it does not know go on to vLLM).
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, assign, unused
from handler.config.dialects import vllm_names as engine
from handler.config.problems import unknown
from handler.errors import SettingError

PREFIX, OPTIMUM_PREFIX = "SM_VLLM_", "SM_ON_"
# Arguments of optimum-neuron -> fields.
OPTIMUM_FIELDS: Mapping[str, str] = {
    "model": "model",
    "served_model_name": "served_model_name",
    "tensor_parallel_size": "tensor_parallel_size",
    "batch_size": "max_num_seqs",
    "sequence_length": "max_model_len",
}
TASK, NON_CACHED = "task", "allow_non_cached_model"


def reads(name: str) -> bool:
    return name.startswith((PREFIX, OPTIMUM_PREFIX))


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: there is no such argument, or the value does not fit.
    """
    optimum = name.startswith(OPTIMUM_PREFIX)
    prefix = OPTIMUM_PREFIX if optimum else PREFIX
    argument = engine.canonical(name.removeprefix(prefix))
    if optimum and argument in OPTIMUM_FIELDS:
        return [assign(OPTIMUM_FIELDS[argument], value, name)] if value.strip() else []
    if optimum and argument == NON_CACHED:
        return [unused(name, "this endpoint always compiles a model that is in no cache")]
    if optimum and argument == TASK:
        if value in {"", "generate"}:
            return []
        raise SettingError(name, f"'{value[:80]}' is not a task of this endpoint, which generates text", "Remove it.")
    if not engine.is_known(argument):
        own = (*OPTIMUM_FIELDS, TASK, NON_CACHED) if optimum else ()
        known: list[str] = [other.upper() for other in (*engine.names(), *own)]
        what = "an argument of optimum-neuron or vLLM" if optimum else "an engine argument of vLLM"
        raise unknown(name, argument.upper(), known, prefix, what)
    if not value.strip():
        return engine.translate(argument, True, name) if engine.is_flag(argument) else []
    return engine.translate(argument, value, name)
