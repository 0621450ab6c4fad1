"""Translates variables of the Neuron software. Those without a field are passed on unchanged.

Sources: vllm-project/vllm-neuron (0.5.x), aws-neuron/neuronx-distributed-inference, the legacy fork
aws-neuron/upstreaming-to-vllm, and the Neuron documentation of runtime and compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, Translator, converted, if_true, to_field
from handler.config.problems import reject_near_miss
from handler.config.values import clean
from handler.errors import SettingError

PREFIXES = ("NEURON_", "XLA_", "VLLM_NEURON_", "NXD_")
# Without one of the prefixes.
SINGLE = (
    *("BASE_COMPILE_WORK_DIR", "DISABLE_NEURON_CUSTOM_SCHEDULER", "MASTER_ADDR", "UNSAFE_FP8FNCAST"),
    # vLLM's own. Two decide whether the native plugin starts, the plugin for NxD Inference reads the third, the CPU
    # engine the others.
    *("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_USE_V2_MODEL_RUNNER", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    *("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_SIM_MULTI_NUMA", "VLLM_MLA_DISABLE"),
    # Where the other side of disaggregated inference reaches this one.
    *("VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"),
)
FRAMEWORK_VARIABLE = "VLLM_NEURON_FRAMEWORK"
FRAMEWORKS = NXD_INFERENCE, TRANSFORMERS_NEURONX, OPTIMUM_NEURON = (
    "neuronx-distributed-inference",
    "transformers-neuronx",
    "optimum-neuron",
)
# Passed on unchanged. A name that is almost one of these is rejected as a typing error; any other name is passed on.
_NAMES = """
    BASE_COMPILE_WORK_DIR MASTER_ADDR NEURON_CC_FLAGS NEURON_COMBINE_KV_ALLOCATIONS NEURON_COMPILE_CACHE_URL
    NEURON_CPP_LOG_LEVEL NEURON_CUSTOM_SILU NEURON_FUSE_SOFTMAX NEURON_LIBTORCH_ASSERT_CACHE_HIT
    NEURON_LIBTORCH_CACHE_ROOT NEURON_LIBTORCH_COMPILATION_TIMEOUT NEURON_LIBTORCH_DISABLE_COMPILE_CACHE
    NEURON_LIBTORCH_DISABLE_GRAPH_CAPTURE_BACKEND NEURON_LIBTORCH_PARALLEL_COMPILE_WORKERS
    NEURON_LIBTORCH_REMOTE_CACHE NEURON_PLATFORM_TARGET_OVERRIDE NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS
    NEURON_RT_DBG_SCRATCHPAD_ON_SINGLE_CORE NEURON_RT_DISABLE_EXECUTION_BARRIER NEURON_RT_ENABLE_OCP
    NEURON_RT_ENABLE_OCP_SATURATION NEURON_RT_EXEC_TIMEOUT NEURON_RT_INSPECT_ENABLE NEURON_RT_IO_RING_CACHE_SIZE
    NEURON_RT_LOG_LEVEL NEURON_RT_LOG_LOCATION NEURON_RT_MAP_HBM NEURON_RT_NUM_CORES NEURON_RT_ROOT_COMM_ID
    NEURON_RT_STOCHASTIC_ROUNDING_EN NEURON_RT_STOCHASTIC_ROUNDING_SEED NEURON_RT_VIRTUAL_CORE_SIZE
    NEURON_RT_VISIBLE_CORES NEURON_RT_XU_COMPUTE_MAX_QUEUED_REQUESTS NEURON_SCRATCHPAD_PAGE_SIZE
    NEURON_SKIP_EFA_AFFINITY NEURON_VISIBLE_DEVICES NXD_CPU_MODE UNSAFE_FP8FNCAST VLLM_ALLOW_LONG_MAX_MODEL_LEN
    VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_CPU_KVCACHE_SPACE VLLM_CPU_OMP_THREADS_BIND VLLM_CPU_SIM_MULTI_NUMA
    VLLM_MLA_DISABLE VLLM_NEURON_ASSERT_CACHE_HIT VLLM_NEURON_BACKEND
    VLLM_NEURON_BARRIER_TIMEOUT VLLM_NEURON_COMPILATION_TIMEOUT VLLM_NEURON_CPU_COMPILE VLLM_NEURON_CPU_MODE
    VLLM_NEURON_DEBUG_MODE VLLM_NEURON_DISABLE_COMPILE_CACHE VLLM_NEURON_DISABLE_GRAPH_CAPTURE_BACKEND
    VLLM_NEURON_DISABLE_NKI_KERNELS VLLM_NEURON_DISABLE_WARMUP_COMPILE VLLM_NEURON_FORCE_STATIC_FP8
    VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION VLLM_NEURON_LOG_LEVEL VLLM_NEURON_MIN_KV_BUDGET_GIB
    VLLM_NEURON_PARALLEL_COMPILE_WORKERS VLLM_NEURON_SKIP_DECODE_WARMUP VLLM_NEURON_SKIP_ENCODER_WARMUP
    VLLM_NEURON_SKIP_PREFILL_DECODE_WARMUP VLLM_NEURON_SKIP_PREFILL_WARMUP VLLM_NEURON_WORKER_TERMINATION_TIMEOUT
    VLLM_NIXL_SIDE_CHANNEL_HOST VLLM_NIXL_SIDE_CHANNEL_PORT
    VLLM_USE_V2_MODEL_RUNNER XLA_DENSE_GATHER_FACTOR XLA_FALLBACK_CPU XLA_FLAGS XLA_HANDLE_SPECIAL_SCALAR
    XLA_HLO_DEBUG XLA_IR_DEBUG XLA_USE_BF16
"""
PASSED_ON = tuple(_NAMES.split())


def _framework(name: str, value: str) -> list[Assignment]:
    if value in FRAMEWORKS:
        return [_pass_on(name, value)]
    problem = f"'{value[:80]}' is not a framework of the Neuron plugin"
    raise SettingError(name, problem, f"Give {', '.join(FRAMEWORKS)}.")


FIELDS: Mapping[str, str] = {
    "NEURON_COMPILED_ARTIFACTS": "compiled_artifacts",
    "NEURON_CONTEXT_LENGTH_BUCKETS": "context_encoding_buckets",
    "NEURON_TOKEN_GEN_BUCKETS": "token_generation_buckets",
    "NEURON_QUANT_DTYPE": "quantization",
    "NEURON_LOGICAL_NC_CONFIG": "logical_nc_config",
}
TRANSLATED: Mapping[str, Translator] = {
    **{name: to_field(field) for name, field in FIELDS.items()},
    "NEURON_ON_DEVICE_SAMPLING_DISABLED": if_true(Assignment("on_device_sampling", False)),
    "DISABLE_NEURON_CUSTOM_SCHEDULER": if_true(Assignment("enable_chunked_prefill", True)),
    FRAMEWORK_VARIABLE: _framework,
}
KNOWN, WHAT = (*TRANSLATED, *PASSED_ON), "a variable of the Neuron software"


def reads(name: str) -> bool:
    return name.startswith(PREFIXES) or name in SINGLE


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: the value does not fit, or the name is almost that of a known variable."""
    if name in TRANSLATED:
        return TRANSLATED[name](name, value.strip())
    reject_near_miss(name, KNOWN, WHAT)
    return [_pass_on(name, value)]


def _pass_on(name: str, value: str) -> Assignment:
    return Assignment("neuron_env", converted(clean, value.strip(), name), key=name)
