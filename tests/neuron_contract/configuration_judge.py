"""Runs in a process of its own: whether configurations start by vLLM's parser and configuration and the plugin's rules.

Arguments: a JSON list of {"arguments", "env", "model", "cores"}, and the file for the answer: why each does not start,
or null. NEURON_STAND_IN says which plugin (`native-configuration`, `nxdi-configuration`; a CPU without).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from tests.argument_verdicts import Questions, in_a_copy, message

GIB = 1024**3
DRAFT = "/opt/draft"
# Packages that are not on this machine, which is none of the configuration.
NO_RAY, NO_ARCTIC = "Failed to import Ray", "Arctic Inference is required"
PLUGIN = os.environ.get("NEURON_STAND_IN", "").partition("-")[0]
# vLLM's configuration takes these below 1, and its start does not: no executor, or no shape, for such a world.
DEGREES = (
    *("pipeline_parallel_size", "data_parallel_size_local"),
    *("prefill_context_parallel_size", "decode_context_parallel_size"),
)


def world_error(config: Any) -> str | None:
    """What vLLM raises as it starts workers, after its configuration (executor/abstract.py, parallel_state.py)."""
    for name in DEGREES:
        if getattr(config.parallel_config, name, 1) < 1:
            return f"{name} is {getattr(config.parallel_config, name)}"
    return None


def plugin_error(job: dict[str, Any], config: Any) -> str | None:
    """What the rules of the plugin say once vLLM has built its configuration."""
    if not PLUGIN:
        return None
    arguments, environment = job["arguments"], {**os.environ, **job["env"]}
    parallel = config.parallel_config
    ranks = parallel.tensor_parallel_size * parallel.data_parallel_size * max(1, parallel.pipeline_parallel_size)
    if ranks > job["cores"]:
        return f"{ranks} ranks and {job['cores']} cores"
    if PLUGIN == "native":
        from neuron_stand_in.native.configuration import NativeConfiguration
        from neuron_stand_in.native.native_rules import refusal
        from neuron_stand_in.native.read_keys import ignored

        asked = NativeConfiguration.of_arguments(arguments, job["model"], environment)
        broken = refusal(asked)
        unread = list(ignored(asked.additional))
        if not isinstance(asked.neuron.get("fp8_packed_kv", True), bool):
            return "fp8_packed_kv: any text counts as true"
        if broken is not None:
            return f"{broken.rule}: {broken.text}"
        return f"unread keys: {unread}" if unread else kv_error(job, config)
    from neuron_stand_in.engine_shape import EngineShape
    from neuron_stand_in.nxdi.neuron_config import KNOWN, build_neuron_config
    from neuron_stand_in.nxdi.overrides import neuron_arguments

    additional = config.additional_config or {}
    unread = sorted((additional.get("override_neuron_config") or {}).keys() - KNOWN)
    if unread:
        return f"unread keys: {unread}"
    try:
        build_neuron_config(neuron_arguments(EngineShape.of(config), additional), environment)
    except Exception as error:
        return message(error)
    return None


def kv_error(job: dict[str, Any], config: Any) -> str | None:
    """The plugin's budget, and vLLM's rule that one sequence of the full length must fit into it."""
    model, degree = job["model"], config.parallel_config.tensor_parallel_size
    usable = int(job["memory"] * config.cache_config.gpu_memory_utilization)
    cap = float(job["env"].get("VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION", "0.3"))
    budget = min(usable - job["parameters"] * 2 // degree, int(usable * cap))
    heads = max(model["num_key_value_heads"] // degree, 1)
    width = 1 if "fp8" in str(config.cache_config.cache_dtype) else 2
    block = job["arguments"].get("block_size") or 32
    length = -(-config.model_config.max_model_len // block) * block
    sequence = 2 * model["num_hidden_layers"] * heads * model["head_dim"] * length * width
    override = config.cache_config.num_gpu_blocks_override
    if override is None and budget < GIB:
        return f"a budget of {budget / GIB:.2f} GiB"
    if sequence > (budget if override is None else sequence * override * block // length):
        return f"a sequence of {sequence / GIB:.2f} GiB, and {budget / GIB:.2f}"
    return None


def drafts(directory: str, model: dict[str, Any]) -> str:
    """A directory with the draft model that users name DRAFT."""
    path = Path(directory, f"draft-{model['max_position_embeddings']}")
    path.mkdir(exist_ok=True)
    own = {"architectures": ["Eagle3LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}
    plain = {key: value for key, value in model.items() if key != "quantization_config"}
    (path / "config.json").write_text(json.dumps({**plain, **own, "draft_vocab_size": 32000}))
    return str(path)


def answer(questions: Questions, job: dict[str, Any]) -> str | None:
    """Why a configuration does not start; None if it does."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(job["model"]))
        os.environ.update(job["env"])
        whole = {**job["arguments"], "model": directory, "skip_tokenizer_init": True}
        draft = whole.get("speculative_config")
        if isinstance(draft, dict) and draft.get("model") == DRAFT:
            whole["speculative_config"] = {**draft, "model": drafts(directory, job["model"])}
        config, error = questions.configure(whole)
        if str(error).startswith(NO_RAY):
            config, error = questions.configure({name: each for name, each in whole.items() if each != "ray"})
        for name in job["env"]:
            os.environ.pop(name, None)
        if str(error).startswith(NO_ARCTIC):
            return None
        return error if config is None else world_error(config) or plugin_error(job, config)


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    questions = Questions.of_process()
    host = SimpleNamespace(total=2048 * GIB, available=2000 * GIB)
    # That of the instance, which vLLM compares with the swap space.
    psutil.virtual_memory = lambda: host  # type: ignore[assignment,return-value]  # a stand-in
    # On a CPU, 0.32.0 keeps what some configurations have set. The stand-ins' versions do not, and a copy takes 0.2 s.
    answers = [answer(questions, job) if PLUGIN else in_a_copy(partial(answer, questions), job) for job in jobs]
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
