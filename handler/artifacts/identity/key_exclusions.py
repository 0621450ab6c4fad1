"""The settings that are not part of a key, each with its reason.

Every other setting is part of the key. An argument that is missing here costs a needless compile, never a wrong graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WHERE = "is a location; the content has its own digest"
_LOGS = "only controls logs or metrics"
_TIME = "limits how long something may take"
_ADDRESS = "is an address, or a name of this process"
_CORES = "selects the cores; their number is the degree of parallelism"


def _by_name(names_by_reason: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in names_by_reason.items() for name in names.split()}


# vLLM's engine arguments, by their Python names.
ENGINE_ARGS = _by_name(
    {
        _WHERE: "model tokenizer hf_config_path download_dir revision code_revision tokenizer_revision lora_modules "
        "allowed_local_media_path",
        "is a secret; the content it gives access to has its own digest": "hf_token",
        "belongs to the HTTP server": "api_key served_model_name host port root_path",
        "converts between text and tokens, outside of the graph": "chat_template tokenizer_mode skip_tokenizer_init "
        "reasoning_parser reasoning_parser_plugin tool_call_parser enable_auto_tool_choice response_role",
        "controls what the front end fetches, or how often it answers": "allowed_media_domains stream_interval",
        _LOGS: "disable_log_stats disable_log_requests enable_log_requests max_log_len otlp_traces_endpoint "
        "collect_detailed_traces show_hidden_metrics_for_version aggregate_engine_logging kv_cache_metrics "
        "kv_cache_metrics_sample enable_mfu_metrics enable_logging_iteration_details",
        _TIME: "shutdown_timeout",
        "controls how grammars are parsed; they mask the logits outside of the graph": "structured_outputs_config "
        "guided_decoding_backend",
        "is a default for requests, which is an input of the graph": "seed generation_config "
        "override_generation_config max_logprobs",
        "controls when steps are scheduled, not what a step computes": "async_scheduling",
        "controls how the checkpoint is read, not its content": "load_format model_loader_extra_config "
        "use_tqdm_on_load ignore_patterns safetensors_load_strategy",
        _ADDRESS: "master_addr master_port data_parallel_address data_parallel_rpc_port",
        _CORES: "device_ids",
        "is a share of memory; the number of blocks (num_gpu_blocks_override) is in the key": "gpu_memory_utilization",
    }
)
# What decides the number of blocks on the native lines, unless the plan has one. The KV cache's shape is part of each
# of their graphs (AWS Neuron documentation, vLLM Neuron, "determine_available_memory").
SIZES_NATIVE_CACHE = "gpu_memory_utilization"
# The draft model's location inside `speculative_config`. Its other fields are part of the key.
SPECULATIVE = _by_name({_WHERE: "model revision code_revision"})
# The peers inside `kv_transfer_config`.
TRANSFER = _by_name({_ADDRESS: "kv_ip kv_port engine_id"})
# The same of encoders, inside `ec_transfer_config`.
ENCODER_TRANSFER = _by_name({_ADDRESS: "ec_ip ec_port engine_id"})
# How `kv_events_config` publishes. That it is there is part of the key: vLLM 0.16 then uses another KV cache manager.
EVENTS = _by_name(
    {
        _ADDRESS: "endpoint replay_endpoint topic",
        "controls how events are published": "publisher buffer_steps hwm max_queue_size",
    }
)
# NeuronConfig (neuronx-distributed-inference, models/config.py).
NEURON_CONFIG = _by_name(
    {
        _WHERE: "quantized_checkpoints_path lora_ckpt_json lora_ckpt_paths lora_ckpt_paths_cpu lora_modules "
        "draft_model_path",
        "only controls whether each graph runs once after loading": "skip_warmup",
    }
)
# config.json of a model.
MODEL_CONFIG = _by_name(
    {
        _WHERE: "_name_or_path _commit_hash",
        "is the version that wrote the file": "transformers_version",
        "has names for display": "id2label label2id",
    }
)
# Variables that a plan sets and that do not change the graph.
ENVIRONMENT = _by_name(
    {
        "is a work directory, which is the same on every machine for the NEFF cache": "BASE_COMPILE_WORK_DIR",
        _WHERE: "NEURON_COMPILED_ARTIFACTS NEURON_COMPILE_CACHE_URL NEURON_LIBTORCH_CACHE_ROOT "
        "NEURON_LIBTORCH_REMOTE_CACHE VLLM_CACHE_ROOT VLLM_CONFIG_ROOT TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR "
        "HF_HOME HF_HUB_CACHE TMPDIR",
        _CORES: "NEURON_RT_VISIBLE_CORES NEURON_VISIBLE_DEVICES",
        "is the degree of parallelism": "NEURON_RT_NUM_CORES",
        _LOGS: "NEURON_RT_LOG_LEVEL NEURON_RT_LOG_LOCATION NEURON_CPP_LOG_LEVEL NEURON_RT_INSPECT_ENABLE "
        "NEURON_RT_INSPECT_OUTPUT_DIR NEURON_RT_INSPECT_DEVICE_PROFILE NEURON_RT_INSPECT_SYSTEM_PROFILE "
        "VLLM_NEURON_LOG_LEVEL VLLM_LOGGING_LEVEL",
        _TIME: "NEURON_RT_EXEC_TIMEOUT NEURON_LIBTORCH_COMPILATION_TIMEOUT "
        "VLLM_NEURON_COMPILATION_TIMEOUT VLLM_NEURON_BARRIER_TIMEOUT VLLM_NEURON_WORKER_TERMINATION_TIMEOUT "
        "VLLM_ENGINE_READY_TIMEOUT_S VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS VLLM_ENGINE_ITERATION_TIMEOUT_S "
        "VLLM_RPC_TIMEOUT VLLM_NIXL_ABORT_REQUEST_TIMEOUT VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
        "forbids a compile, so the graphs are those of a start without it": "NEURON_LIBTORCH_ASSERT_CACHE_HIT "
        "VLLM_NEURON_ASSERT_CACHE_HIT VLLM_NEURON_DISABLE_WARMUP_COMPILE",
        _ADDRESS: "MASTER_ADDR MASTER_PORT NEURON_RT_ROOT_COMM_ID NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT "
        "VLLM_HOST_IP VLLM_LOOPBACK_IP VLLM_PORT VLLM_DP_MASTER_IP VLLM_DP_MASTER_PORT VLLM_NIXL_SIDE_CHANNEL_HOST "
        "VLLM_NIXL_SIDE_CHANNEL_PORT VLLM_EC_SIDE_CHANNEL_HOST VLLM_EC_SIDE_CHANNEL_PORT GLOO_SOCKET_IFNAME "
        "CCOM_SOCKET_IFNAME FI_EFA_IFACE",
        "is the field lnc of the key": "NEURON_LOGICAL_NC_CONFIG",
        "is the field platform of the key": "NEURON_PLATFORM_TARGET_OVERRIDE",
        "has the same graphs compiled on a host without devices": "VLLM_NEURON_CPU_COMPILE",
        "controls threads and processes of the host": "OMP_NUM_THREADS VLLM_CPU_OMP_THREADS_BIND "
        "VLLM_CPU_SIM_MULTI_NUMA NEURON_LIBTORCH_PARALLEL_COMPILE_WORKERS VLLM_NEURON_PARALLEL_COMPILE_WORKERS",
        "is the memory for the KV cache, an input of the graph": "VLLM_CPU_KVCACHE_SPACE",
    }
)
# What differs between the instances of a fleet that are configured alike.
OF_INSTANCE = {
    name: reason
    for name, reason in {**ENGINE_ARGS, **TRANSFER, **ENCODER_TRANSFER, **EVENTS, **ENVIRONMENT}.items()
    if reason in (_ADDRESS, _CORES)
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
