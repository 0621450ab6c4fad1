"""What no key holds, each with its reason. Whatever is not here is part of the key: an argument that nobody thought of
costs one compile too many, never a wrong graph."""

from __future__ import annotations

import re

_WHERE = "says where something is, not what it is: its content has a digest of its own"
_SERVING = "belongs to the HTTP side"
_TEXT = "turns text into tokens or back, outside of the graph"
_LOGS = "only says what is logged or measured"
_SAMPLING = "a default of requests, given to the graph as input"
_GRAMMARS = "says how grammars are read; what they forbid is a mask over the logits, outside of the graph"
_LOADING = "says how the checkpoint is read, not what is in it"

# vLLM's engine arguments, by their Python names.
ENGINE_ARGS: dict[str, str] = {
    "model": _WHERE,
    "tokenizer": _WHERE,
    "hf_config_path": _WHERE,
    "download_dir": _WHERE,
    "revision": _WHERE,
    "code_revision": _WHERE,
    "tokenizer_revision": _WHERE,
    "lora_modules": _WHERE,
    "allowed_local_media_path": _WHERE,
    "hf_token": "a secret; what it opens has a digest of its own",
    "api_key": "a secret of the HTTP side",
    "served_model_name": _SERVING,
    "host": _SERVING,
    "port": _SERVING,
    "root_path": _SERVING,
    "chat_template": _TEXT,
    "tokenizer_mode": _TEXT,
    "skip_tokenizer_init": _TEXT,
    "reasoning_parser": _TEXT,
    "tool_call_parser": _TEXT,
    "enable_auto_tool_choice": _TEXT,
    "response_role": _TEXT,
    "disable_log_stats": _LOGS,
    "disable_log_requests": _LOGS,
    "enable_log_requests": _LOGS,
    "max_log_len": _LOGS,
    "otlp_traces_endpoint": _LOGS,
    "collect_detailed_traces": _LOGS,
    "show_hidden_metrics_for_version": _LOGS,
    "structured_outputs_config": _GRAMMARS,
    "guided_decoding_backend": _GRAMMARS,
    "seed": _SAMPLING,
    "generation_config": _SAMPLING,
    "override_generation_config": _SAMPLING,
    "max_logprobs": _SAMPLING,
    "load_format": _LOADING,
    "model_loader_extra_config": _LOADING,
    "use_tqdm_on_load": _LOADING,
    "ignore_patterns": _LOADING,
    "gpu_memory_utilization": "a share of memory; blocks that are fixed are num_gpu_blocks_override, which is kept",
}

# The draft's place inside `speculative_config`; the rest of it is kept.
SPECULATIVE = {"model": _WHERE, "revision": _WHERE, "code_revision": _WHERE}

# NeuronConfig (neuronx-distributed-inference, models/config.py).
NEURON_CONFIG: dict[str, str] = {
    "quantized_checkpoints_path": _WHERE,
    "lora_ckpt_json": _WHERE,
    "lora_ckpt_paths": _WHERE,
    "lora_ckpt_paths_cpu": _WHERE,
    "draft_model_path": _WHERE,
    "skip_warmup": "runs each graph once after loading, or not",
}

# config.json of a model.
MODEL_CONFIG: dict[str, str] = {
    "_name_or_path": _WHERE,
    "_commit_hash": _WHERE,
    "transformers_version": "says who wrote the file",
    "id2label": "names for people",
    "label2id": "names for people",
}

# Variables that a plan sets and that are no part of the graph.
ENVIRONMENT: dict[str, str] = {
    "BASE_COMPILE_WORK_DIR": "a work directory; it is the same everywhere for the NEFF cache's sake",
    "NEURON_COMPILED_ARTIFACTS": _WHERE,
    "NEURON_COMPILE_CACHE_URL": _WHERE,
    "VLLM_CACHE_ROOT": _WHERE,
    "VLLM_CONFIG_ROOT": _WHERE,
    "TORCHINDUCTOR_CACHE_DIR": _WHERE,
    "TRITON_CACHE_DIR": _WHERE,
    "HF_HOME": _WHERE,
    "HF_HUB_CACHE": _WHERE,
    "TMPDIR": _WHERE,
    "NEURON_RT_VISIBLE_CORES": "says which cores are used; how many is the degree of parallelism",
    "NEURON_RT_NUM_CORES": "says how many cores are used, as the degree of parallelism does",
    "NEURON_RT_LOG_LEVEL": _LOGS,
    "VLLM_LOGGING_LEVEL": _LOGS,
    "MASTER_ADDR": "an address",
    "MASTER_PORT": "a port",
    "NEURON_RT_ROOT_COMM_ID": "an address",
    "NEURON_LOGICAL_NC_CONFIG": "is the key's lnc",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "is the key's platform",
    "OMP_NUM_THREADS": "threads of the host",
    "VLLM_CPU_OMP_THREADS_BIND": "threads of the host",
    "VLLM_CPU_KVCACHE_SPACE": "memory for the KV cache, an input of the graph",
}
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_KEY|ACCESS_KEY")

# Compiler flags inside NEURON_CC_FLAGS and XLA_FLAGS that say where things are or what is logged (neuronx-cc's
# command line reference; libneuronxla's wrapper takes --cache_dir and --retry_failed_compilation).
FLAGS = re.compile(
    r"--?(cache[-_]dir|logfile|logfile-verbose|verbose|v|workdir|work-dir|dump|output|jobs|"
    r"retry_failed_compilation|xla_dump_\w+)"
)
FLAGS_WITH_VALUE = re.compile(r"--(cache[-_]dir|logfile|logfile-verbose|verbose|workdir|work-dir|dump|output|jobs)")
# Taken from the process's environment, whoever set them: the compiler and XLA read them.
COMPILER = re.compile(r"NEURON_CC_FLAGS|XLA_.*|UNSAFE_.*|NEURON_FUSE_.*|NEURON_COMBINE_KV_ALLOCATIONS")
