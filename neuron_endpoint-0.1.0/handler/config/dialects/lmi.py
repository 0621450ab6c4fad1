"""Translates LMI's `OPTION_*` variables and `serving.properties`, including its NeuronX options.

Source: deepjavalibrary/djl-serving, serving/docs/lmi (configurations.md, vllm_user_guide.md) and, for the NeuronX
options, which were removed in November 2025, tnx_properties.py and tnx_user_guide.md at the commit before 1132e3ab.
An option becomes a field, has no effect (`config explain` tells the reason), or is rejected with an error that tells
the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from handler.config.assignment import Assignment, Translator, assign, converted, if_true, to_field, unused
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.lmi_rejected import NO_EFFECT, REJECTED, SERVER_NO_EFFECT
from handler.config.dialects.near_miss import unknown
from handler.config.values import clean, to_int
from handler.errors import SettingError

PREFIX = "OPTION_"
FILE_PREFIX = "option."
INT8 = if_true(Assignment("quantization", "int8"))


def _engine(argument: str) -> Translator:
    return lambda name, value: engine.translate(argument, value, name)


def _only(*values: str, reason: str) -> Translator:
    """Accepts the values that describe what this endpoint does anyway, and rejects all others."""

    def translate(name: str, value: str) -> list[Assignment]:
        if value.strip().lower() not in values:
            raise SettingError(
                name, f"'{value[:80]}' is not supported here: {reason}", f"Remove it, or set it to {values[0]}."
            )
        return []

    return translate


def _rolling_batch(name: str, value: str) -> list[Assignment]:
    if value.strip().lower() == "disable":
        return [assign("max_num_seqs", 1, name)]
    reason = "the engine is vLLM with continuous batching"
    return _only("auto", "vllm", "tnx", reason=reason)(name, value)


def _on_device_generation(name: str, value: str) -> list[Assignment]:
    """LMI takes a flag or the path of a JSON file. The settings in such a file are NxDI's, under other names."""
    try:
        return [assign("on_device_sampling", value, name)]
    except SettingError:
        fix = "Give true or false, and put the file's settings into neuron_config.on_device_sampling_config."
        raise SettingError(name, "takes true or false here, not a file", fix) from None


def _flag(option: str) -> Translator:
    """An option that LMI turns into the compiler flag of the same name."""
    return if_true(Assignment("neuron_env", f"--{option.replace('_', '-')}", key="NEURON_CC_FLAGS", part=option))


def _optimize_level(name: str, value: str) -> list[Assignment]:
    if value.strip() not in {"1", "2", "3"}:
        raise SettingError(name, f"'{value[:80]}' is not an optimization level of the compiler", "Give 1, 2 or 3.")
    return [Assignment("neuron_env", f"-O{value.strip()}", key="NEURON_CC_FLAGS", part="neuron_optimize_level")]


def _cache(name: str, value: str) -> list[Assignment]:
    """LMI uses this path as the compiler's cache, for the draft model as for the target model."""
    return [Assignment("neuron_env", converted(clean, value.strip(), name), key="NEURON_COMPILE_CACHE_URL")]


def _pipeline_factor(name: str, value: str) -> list[Assignment]:
    return [Assignment("neuron_config", converted(to_int, value, name), key="cc_pipeline_tiling_factor")]


def _loader(name: str, value: str) -> list[Assignment]:
    if value.strip() == "optimum":
        return [assign("line", "optimum", name)]
    return _only("nxdi", "vllm", reason="transformers-neuronx is served by the legacy lines only")(name, value)


def _handler(name: str, value: str) -> list[Assignment]:
    handlers = ("djl_python.huggingface", "djl_python.transformers_neuronx", "djl_python.lmi_vllm.vllm_async_service")
    return _only(*handlers, reason="this endpoint is the handler")(name, value)


OPTIONS: Mapping[str, Translator] = {
    "model_id": to_field("model"),
    "revision": _engine("revision"),
    "trust_remote_code": to_field("trust_remote_code"),
    "tensor_parallel_degree": to_field("tensor_parallel_size"),
    "pipeline_parallel_degree": _engine("pipeline_parallel_size"),
    "rolling_batch": _rolling_batch,
    "rolling_batch_strategy": _only("continuous_batching", reason="sequences are batched continuously"),
    "max_rolling_batch_size": to_field("max_num_seqs"),
    "max_rolling_batch_prefill_tokens": _engine("max_num_batched_tokens"),
    "cpu_offload_gb_per_gpu": _engine("cpu_offload_gb"),
    "batch_size": _only("1", reason="max_rolling_batch_size says how many sequences run at once"),
    "dtype": to_field("dtype"),
    "amp": to_field("dtype"),
    "n_positions": to_field("max_model_len"),
    "quantize": to_field("quantization"),
    "load_in_8bit": INT8,
    "neuron_quant": INT8,
    "context_length_estimate": to_field("context_encoding_buckets"),
    "compiled_graph_path": _cache,
    "draft_model_compiled_path": _cache,
    "speculative_draft_model": to_field("speculative_model"),
    "draft_model_id": to_field("speculative_model"),
    "speculative_length": to_field("num_speculative_tokens"),
    "spec_length": to_field("num_speculative_tokens"),
    "on_device_generation": _on_device_generation,
    "fuse_qkv": to_field("fused_qkv"),
    "sequence_parallel": to_field("sequence_parallel_enabled"),
    "neuron_cc_pipeline_factor": _pipeline_factor,
    "neuron_optimize_level": _optimize_level,
    "enable_mixed_precision_accumulation": _flag("enable_mixed_precision_accumulation"),
    "enable_saturate_infinity": _flag("enable_saturate_infinity"),
    "model_loader": _loader,
    "output_formatter": to_field("output_formatter"),
    "tgi_compat": if_true(Assignment("inputs_schema", "tgi")),
    "device": _only("neuron", "auto", "cpu", reason="the line decides the device"),
    "task": _only("text-generation", "generate", "auto", reason="this endpoint generates text"),
    "entrypoint": _handler,
}
# Keys of serving.properties without `option.`.
SERVER: Mapping[str, Translator] = {
    "engine": _only("python", "mpi", reason="the engine is vLLM"),
    "job_queue_size": to_field("max_concurrent"),
    "batch_size": OPTIONS["batch_size"],
    "minworkers": _only("1", reason="one engine serves every request"),
    "maxworkers": _only("1", reason="one engine serves every request"),
}


def reads(name: str) -> bool:
    return name.startswith(PREFIX)


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: the option is unknown or not supported, or the value does not fit.
    """
    return _option(name, name.removeprefix(PREFIX), value, PREFIX, str.upper)


def translate_key(key: str, value: str) -> list[Assignment]:
    """Translates one key of serving.properties.

    :raises SettingError: the key is unknown or not supported, or the value does not fit.
    """
    if key.startswith(FILE_PREFIX):
        return _option(key, key.removeprefix(FILE_PREFIX), value, FILE_PREFIX, str)
    found = _server(key, key.lower(), value)
    if found is not None:
        return found
    known = {*SERVER, *SERVER_NO_EFFECT, *(FILE_PREFIX + option for option in OPTIONS)}
    raise unknown(key, key, known, "", "a key of serving.properties that this endpoint reads")


def translate_server(name: str, key: str, value: str) -> list[Assignment]:
    """Translates a variable of LMI's server, which has a key of serving.properties in its name.

    :raises SettingError: the value does not fit.
    """
    for spelling in (key.lower(), key.lower().replace("_", "")):
        found = _server(name, spelling, value)
        if found is not None:
            return found
    return [unused(name, "LMI's server does not run here")]


def _server(name: str, key: str, value: str) -> list[Assignment] | None:
    if key in SERVER:
        return SERVER[key](name, value)
    return [unused(name, SERVER_NO_EFFECT[key])] if key in SERVER_NO_EFFECT else None


def _option(name: str, option: str, value: str, prefix: str, spell: Callable[[str], str]) -> list[Assignment]:
    option = engine.canonical(option)
    if option in OPTIONS:
        return OPTIONS[option](name, value)
    if option in NO_EFFECT:
        return [unused(name, NO_EFFECT[option])]
    if option in REJECTED:
        if value.strip().lower() in {"false", "0", "none"}:
            return []
        raise SettingError(name, f"is not supported here: {REJECTED[option]}", "Remove it.")
    if engine.is_known(option):
        return engine.translate(option, value, name)
    known = [spell(other) for other in (*OPTIONS, *NO_EFFECT, *REJECTED, *engine.names())]
    raise unknown(name, spell(option), known, prefix, "an option of LMI or an engine argument of vLLM")
