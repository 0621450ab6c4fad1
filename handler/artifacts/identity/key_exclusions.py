"""The settings that are not part of a key, each with its reason.

Every other setting is part of the key. An argument that is missing here costs a needless compile, never a wrong graph.
"""

from __future__ import annotations

import re

_WHERE = "is a location; the content has its own digest"
_SERVING = "belongs to the HTTP server"
_TEXT = "converts between text and tokens, outside of the graph"
_LOGS = "only controls logs or metrics"
_SAMPLING = "a default for requests, which is an input of the graph"
_GRAMMARS = "controls how grammars are parsed; they mask the logits outside of the graph"
_SCHEDULING = "controls when steps are scheduled, not what a step computes"
_LOADING = "controls how the checkpoint is read, not its content"

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
    "hf_token": "a secret; the content it gives access to has its own digest",
    "api_key": "a secret of the HTTP server",
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
    "async_scheduling": _SCHEDULING,
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
    "gpu_memory_utilization": "a share of memory; a fixed number of blocks (num_gpu_blocks_override) is in the key",
}

# The draft model's location inside `speculative_config`. Its other fields are part of the key.
SPECULATIVE = {"model": _WHERE, "revision": _WHERE, "code_revision": _WHERE}

# NeuronConfig (neuronx-distributed-inference, models/config.py).
NEURON_CONFIG: dict[str, str] = {
    "quantized_checkpoints_path": _WHERE,
    "lora_ckpt_json": _WHERE,
    "lora_ckpt_paths": _WHERE,
    "lora_ckpt_paths_cpu": _WHERE,
    "draft_model_path": _WHERE,
    "skip_warmup": "only controls whether each graph runs once after loading",
}

# config.json of a model.
MODEL_CONFIG: dict[str, str] = {
    "_name_or_path": _WHERE,
    "_commit_hash": _WHERE,
    "transformers_version": "the version that wrote the file",
    "id2label": "names for display",
    "label2id": "names for display",
}

# Variables that a plan sets and that do not change the graph.
ENVIRONMENT: dict[str, str] = {
    "BASE_COMPILE_WORK_DIR": "a work directory, which is the same on every machine for the NEFF cache",
    "NEURON_COMPILED_ARTIFACTS": _WHERE,
    "NEURON_COMPILE_CACHE_URL": _WHERE,
    "VLLM_CACHE_ROOT": _WHERE,
    "VLLM_CONFIG_ROOT": _WHERE,
    "TORCHINDUCTOR_CACHE_DIR": _WHERE,
    "TRITON_CACHE_DIR": _WHERE,
    "HF_HOME": _WHERE,
    "HF_HUB_CACHE": _WHERE,
    "TMPDIR": _WHERE,
    "NEURON_RT_VISIBLE_CORES": "selects the cores; their number is the degree of parallelism",
    "NEURON_RT_NUM_CORES": "the number of cores, which is the degree of parallelism",
    "NEURON_RT_LOG_LEVEL": _LOGS,
    "VLLM_LOGGING_LEVEL": _LOGS,
    "MASTER_ADDR": "an address",
    "MASTER_PORT": "a port",
    "NEURON_RT_ROOT_COMM_ID": "an address",
    "NEURON_LOGICAL_NC_CONFIG": "is the field lnc of the key",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "is the field platform of the key",
    "OMP_NUM_THREADS": "threads of the host",
    "VLLM_CPU_OMP_THREADS_BIND": "threads of the host",
    "VLLM_CPU_KVCACHE_SPACE": "memory for the KV cache, an input of the graph",
}
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_KEY|ACCESS_KEY")

# Compiler flags in NEURON_CC_FLAGS and XLA_FLAGS that name paths or control logs (neuronx-cc's command line reference;
# libneuronxla's wrapper takes --cache_dir and --retry_failed_compilation).
FLAGS = re.compile(
    r"--?(cache[-_]dir|logfile|logfile-verbose|verbose|v|workdir|work-dir|dump|output|jobs|"
    r"retry_failed_compilation|xla_dump_\w+)"
)
FLAGS_WITH_VALUE = re.compile(r"--(cache[-_]dir|logfile|logfile-verbose|verbose|workdir|work-dir|dump|output|jobs)")
# Variables of the process's environment that the compiler and XLA read.
COMPILER = re.compile(r"NEURON_CC_FLAGS|XLA_.*|UNSAFE_.*|NEURON_FUSE_.*|NEURON_COMBINE_KV_ALLOCATIONS")
