"""LMI's options that are not translated, each with the reason: options without effect, and rejected options.

The source is that of `handler.config.dialects.lmi`. A rejected option that is off (`false`) is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

_TNX = "it is an option of transformers-neuronx that NxD Inference does not have"
_TILING = "it sets the tensor layout of transformers-neuronx; NxD Inference chooses its own"
_FORMAT = "the request decides the format of its reply"
_PARTITION = "models are compiled ahead of time by this endpoint's own tools, not by LMI's partition script"

# Known options without effect: replies are the same with and without them.
NO_EFFECT: Mapping[str, str] = {
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
    "max_batch_delay": "continuous batching does not wait for a batch to fill",
    "max_idle_time": "the engine is never scaled down",
    "load_on_devices": "the engine uses the cores that it is given",
    **dict.fromkeys(("log_request_metric", "metrics_aggregation"), "metrics are at /metrics"),
    "retry_threshold": "ENDPOINT_ENGINE_RESTARTS bounds restarts",
    **dict.fromkeys(("required_memory_mb", "reserved_memory_mb"), "memory is estimated from the model"),
}
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
