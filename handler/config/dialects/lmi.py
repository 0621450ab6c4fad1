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
from handler.config.problems import unknown
from handler.config.values import clean, to_int
from handler.errors import SettingError

PREFIX = "OPTION_"
FILE_PREFIX = "option."
INT8 = if_true(Assignment("quantization", "int8"))


def _engine(argument: str) -> Translator:
    return lambda name, value: engine.translate_argument(argument, value, name)


def _only(*values: str, reason: str) -> Translator:
    """Accepts the values that describe what this endpoint does anyway, and rejects all others."""

    def translate(name: str, value: str) -> list[Assignment]:
        if value.strip().lower() not in values:
            raise SettingError(
                name, f"'{value[:80]}' is not supported here: {reason}", f"Remove it, or set it to {values[0]}."
            )
        return []

    return translate


def _task(name: str, value: str) -> list[Assignment]:
    if value.strip().lower().replace("_", "-") in {"text-embedding", "embedding", "embed"}:
        return _engine("runner")(name, "pooling")
    reason = "an endpoint generates text, or makes embeddings (text-embedding)"
    return _only("text-generation", "generate", "auto", reason=reason)(name, value)


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
    # `disable` turns LMI's own batching off, as its asynchronous mode needs. vLLM's scheduler batches all the same.
    "rolling_batch": _only("auto", "vllm", "tnx", "disable", reason="the engine is vLLM with continuous batching"),
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
    "task": _task,
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
_TNX = "it is an option of transformers-neuronx that NxD Inference does not have"
_TILING = "it sets the tensor layout of transformers-neuronx; NxD Inference chooses its own"
_FORMAT = "the request decides the format of its reply"
_PARTITION = "models are compiled ahead of time by this endpoint's own tools, not by LMI's partition script"

# Known options without effect: replies are the same with and without them.
NO_EFFECT: Mapping[str, str] = {
    "async_mode": "the engine is always called asynchronously, as in LMI's asynchronous mode",
    "model_loading_timeout": "SageMaker's own ContainerStartupHealthCheckTimeoutInSeconds bounds the start",
    "predict_timeout": "SageMaker's own limits bound a request",
    "parallel_loading": "there is one engine to load",
    "enable_streaming": 'a request asks for a stream with "stream": true',
    "low_cpu_mem_usage": "weights are read from safetensors without a second copy",
    "mpi_mode": "vLLM starts its own processes",
    "max_output_size": "replies are not bounded by size",
    **dict.fromkeys(("pythonexecutable", "enable_venv"), "the endpoint runs in its own interpreter"),
    "cluster_size": "the instance decides",
}
SERVER_NO_EFFECT: Mapping[str, str] = {
    "async_mode": "the engine is always called asynchronously, as in LMI's asynchronous mode",
    "max_batch_delay": "continuous batching does not wait for a batch to fill",
    "max_idle_time": "the engine is never scaled down",
    "load_on_devices": "the engine uses the cores that it is given",
    **dict.fromkeys(("log_request_metric", "metrics_aggregation"), "metrics are at /metrics"),
    "retry_threshold": "ENDPOINT_ENGINE_RESTARTS bounds restarts",
    **dict.fromkeys(("required_memory_mb", "reserved_memory_mb"), "memory is estimated from the model"),
}
# Rejected options. One that is off (`false`) is accepted.
REJECTED: Mapping[str, str] = {
    **dict.fromkeys(("unroll", "fuse_mlp", "fused_rmsnorm_qkv", "shard_over_sequence"), _TNX),
    **dict.fromkeys(("sequence_parallel_norm_threshold", "all_reduce_dtype", "cast_logits_dtype"), _TNX),
    **dict.fromkeys(("attention_layout", "collectives_layout", "cache_layout", "qkv_tiling"), _TILING),
    **dict.fromkeys(("weight_tiling", "mlp_out_weight_transpose"), _TILING),
    **dict.fromkeys(("partition_schema", "save_mp_checkpoint_path"), _PARTITION),
    **dict.fromkeys(("input_formatter", "bedrock_compat"), _FORMAT),
    "group_query_attention": "NxD Inference shards or replicates the KV heads by the tensor parallel degree",
    "on_device_embedding": "NxD Inference always embeds on the device",
    "load_split_model": "split checkpoints of transformers-neuronx cannot be read; use save_sharded_checkpoint",
    "draft_model_tp_size": "the draft model runs on the target's cores, with its tensor parallel degree",
    "multi_node": "give the number of instances with ENDPOINT_NODES",
    "compilation_worker_count": "the compiler decides",
    "preloaded_model": "the engine loads the model itself",
    "waiting_steps": "vLLM's scheduler decides",
    "adapters": "name the adapters in ENDPOINT_LORA_MODULES",
    "handler": "this endpoint is the handler",
    "enable_reasoning": "vLLM removed it; reasoning_parser alone turns reasoning on",
}


def reads(name: str) -> bool:
    return name.startswith(PREFIX)


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: the option is unknown or not supported, or the value does not fit."""
    return _option(name, name.removeprefix(PREFIX), value, PREFIX, str.upper)


def translate_key(key: str, value: str) -> list[Assignment]:
    """:raises SettingError: the key of serving.properties is unknown or not supported, or the value does not fit."""
    if key.startswith(FILE_PREFIX):
        return _option(key, key.removeprefix(FILE_PREFIX), value, FILE_PREFIX, str)
    assignments = _server(key, key.lower(), value)
    if assignments is not None:
        return assignments
    known = {*SERVER, *SERVER_NO_EFFECT, *(FILE_PREFIX + option for option in OPTIONS)}
    raise unknown(key, key, known, "", "a key of serving.properties that this endpoint reads")


def translate_server(name: str, key: str, value: str) -> list[Assignment]:
    """Translates a variable of LMI's server, which has a key of serving.properties in its name.

    :raises SettingError: the value does not fit.
    """
    for spelling in (key.lower(), key.lower().replace("_", "")):
        assignments = _server(name, spelling, value)
        if assignments is not None:
            return assignments
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
        return engine.translate_argument(option, value, name)
    known = [spell(other) for other in (*OPTIONS, *NO_EFFECT, *REJECTED, *engine.names())]
    raise unknown(name, spell(option), known, prefix, "an option of LMI or an engine argument of vLLM")
