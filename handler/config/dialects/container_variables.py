"""What each variable of the containers that people come from means here. One table; names with a prefix of their own
(`OPTION_*`, `SM_VLLM_*`, `SM_ON_*`, the Neuron software's) have dialects of their own.

Sources: SageMaker's documentation; deepjavalibrary/djl-serving, serving/docs (LMI); huggingface/
text-generation-inference, launcher/src/main.rs and sagemaker-entrypoint.sh (TGI); huggingface/optimum-neuron,
text-generation-inference and docker (TGI on Neuron); aws/sagemaker-inference-toolkit,
aws/sagemaker-pytorch-inference-toolkit and aws/sagemaker-huggingface-inference-toolkit; aws/deep-learning-containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.config.assignment import Assignment, assign, converted, unused
from handler.config.dialects import lmi
from handler.config.dialects import vllm_names as engine
from handler.config.values import to_int
from handler.errors import SettingError
from handler.json_value import Json

# Field -> its variables: of SageMaker, its toolkits and the AWS vLLM images (a batch transform job sets SAGEMAKER_BATCH
# and the three after it); of LMI, the hub, TGI, TGI on Neuron and Hugging Face's toolkit there.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "port": ("SAGEMAKER_BIND_TO_PORT",),
    "safe_port_range": ("SAGEMAKER_SAFE_PORT_RANGE",),
    "multi_model": ("SAGEMAKER_MULTI_MODEL",),
    "enable_sessions": ("SAGEMAKER_ENABLE_STATEFUL_SESSIONS",),
    "session_expiration": ("SAGEMAKER_SESSIONS_EXPIRATION",),
    "requirements": ("STANDARD_AUTO_INSTALL_REQ",),
    "batch_transform": ("SAGEMAKER_BATCH",),
    "max_payload_mb": ("SAGEMAKER_MAX_PAYLOAD_IN_MB",),
    "batch_strategy": ("SAGEMAKER_BATCH_STRATEGY",),
    "max_concurrent_transforms": ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",),
    "model": ("HF_MODEL_ID", "MODEL_ID"),
    "hf_token": ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN", "HF_HUB_TOKEN"),
    "trust_remote_code": ("HF_MODEL_TRUST_REMOTE_CODE", "HF_TRUST_REMOTE_CODE"),
    "tensor_parallel_size": ("TENSOR_PARALLEL_DEGREE", "NUM_SHARD", "SM_NUM_GPUS", "HF_NUM_CORES"),
    "max_num_seqs": ("MAX_BATCH_SIZE", "HF_BATCH_SIZE", "HF_OPTIMUM_BATCH_SIZE"),
    "max_model_len": ("MAX_TOTAL_TOKENS", "HF_SEQUENCE_LENGTH", "HF_OPTIMUM_SEQUENCE_LENGTH"),
    "max_concurrent": ("MAX_CONCURRENT_REQUESTS",),
    "dtype": ("HF_AUTO_CAST_TYPE",),
    "quantization": ("HF_MODEL_QUANTIZE",),
    "max_body": ("PAYLOAD_LIMIT",),
    "drain": ("GRACEFUL_TERMINATION_TIMEOUT",),
}
FIELDS: Final[Mapping[str, str]] = {name: field for field, names in _NAMES.items() for name in names}
# The number of serving processes, of SageMaker's toolkits.
WORKERS: Final = "SAGEMAKER_MODEL_SERVER_WORKERS"
# The subdirectory `model/` of this directory is the model if nothing else names one. Read after everything else.
BASE: Final = "SAGEMAKER_BASE_DIR"
# Variable -> vLLM's engine argument.
ARGUMENTS: Final = {"HF_REVISION": "revision", "HF_MODEL_REVISION": "revision", "LORA_ADAPTERS": "lora_modules"}

_SCHEDULER = "vLLM's scheduler decides; SM_VLLM_MAX_NUM_SEQS and SM_VLLM_MAX_NUM_BATCHED_TOKENS bound its batches"
_PROMPT = "a prompt may fill the context; ENDPOINT_MAX_CONTEXT_LENGTH bounds it on the lines of NxD Inference"
_COMMON = "its name is too common to be read: {} does the same"
_TIME = "SageMaker's own limits bound a reply; ENDPOINT_DEADLINE sets another one"
_LOG = "the log's level is fixed; ENDPOINT_LOG_FORMAT and ENDPOINT_LOG_REQUESTS say what it holds"
# Known variables without a counterpart, each with the reason, by which a user can decide. `check` lists them.
NO_COUNTERPART: Final[Mapping[str, str]] = {
    **dict.fromkeys(("MAX_BATCH_PREFILL_TOKENS", "WAITING_SERVED_RATIO", "MAX_WAITING_TOKENS"), _SCHEDULER),
    "MAX_BATCH_TOTAL_TOKENS": "the KV cache's size decides (SM_VLLM_MAX_MODEL_LEN, SM_VLLM_MAX_NUM_SEQS)",
    **dict.fromkeys(("MAX_INPUT_LENGTH", "MAX_INPUT_TOKENS"), _PROMPT),
    **dict.fromkeys(("CUDA_GRAPHS", "CUDA_MEMORY_FRACTION", "DISABLE_CUSTOM_KERNELS"), "it is about CUDA"),
    **dict.fromkeys(("SAGEMAKER_MODEL_SERVER_TIMEOUT", "MODEL_LOADING_TIMEOUT", "PREDICT_TIMEOUT"), _TIME),
    **dict.fromkeys(("SAGEMAKER_CONTAINER_LOG_LEVEL", "LOG_LEVEL"), _LOG),
    "JSON_OUTPUT": "ENDPOINT_LOG_FORMAT does the same",
    "REVISION": _COMMON.format("HF_MODEL_REVISION"),
    "DTYPE": _COMMON.format("SM_VLLM_DTYPE"),
    "QUANTIZE": _COMMON.format("HF_MODEL_QUANTIZE"),
    "TRUST_REMOTE_CODE": _COMMON.format("HF_MODEL_TRUST_REMOTE_CODE"),
    "PORT": _COMMON.format("SAGEMAKER_BIND_TO_PORT"),
    "API_KEY": "SageMaker authenticates each request; elsewhere, put a proxy in front",
    "HF_TASK": "the model decides",
    "HF_MODEL_DIR": "ENDPOINT_MODEL names the model",
    "SHARDED": "the tensor parallel degree decides (SM_VLLM_TENSOR_PARALLEL_SIZE)",
    "SPECULATE": "ENDPOINT_SPECULATIVE_MODEL and ENDPOINT_NUM_SPECULATIVE_TOKENS set up speculation with a draft",
    "MESSAGES_API_ENABLED": "/invocations always reads chats",
    "DISABLE_GRAMMAR_SUPPORT": "ENDPOINT_STRUCTURED_OUTPUTS sets an engine up for grammars",
    "ENABLE_PREFILL_LOGPROBS": "a request asks for them with prompt_logprobs",
    "MAX_CLIENT_BATCH_SIZE": "a body has at most 64 texts, or ENDPOINT_MAX_SEQUENCES if that is less",
    "MAX_BEST_OF": "best_of is at most 8, or ENDPOINT_MAX_SEQUENCES if that is less",
    "MAX_STOP_SEQUENCES": "a request has at most 64 stop strings, of 4,096 characters together",
    "MAX_TOP_N_TOKENS": "top_n_tokens is at most 20, or SM_VLLM_MAX_LOGPROBS if that is less",
    "VALIDATION_WORKERS": "prompts are tokenized in threads",
    "TOKENIZER_CONFIG_PATH": "SM_VLLM_TOKENIZER and ENDPOINT_CHAT_TEMPLATE do the same",
    "OTLP_ENDPOINT": "SM_VLLM_OTLP_TRACES_ENDPOINT does the same",
    "USAGE_STATS": "none are sent",
    "CUSTOM_CACHE_REPO": "ENDPOINT_ARTIFACT_STORE keeps compiled artifacts",
    "SAGEMAKER_SUBMIT_DIRECTORY": "code is read from code/ beside the model",
    "SAGEMAKER_USE_NGINX": "it configures a server that does not run here",
    "SAGEMAKER_MAX_REQUEST_SIZE": "ENDPOINT_MAX_BODY bounds a body",
}
# They would change every answer, so nobody may take them for granted.
REJECTED: Final = dict.fromkeys(
    ("ROPE_SCALING", "ROPE_FACTOR"),
    "Put rope_scaling into config.json. NxD Inference reads no SM_VLLM_HF_OVERRIDES, other lines do.",
) | {
    "KV_CACHE_DTYPE": "Set SM_VLLM_KV_CACHE_DTYPE, or ENDPOINT_KV_CACHE_QUANT on the lines of NxD Inference.",
    "WATERMARK_GAMMA": "Remove it: vLLM has no such watermarks.",
    "WATERMARK_DELTA": "Remove it: vLLM has no such watermarks.",
}
# Prefix -> the software that reads what begins with it.
FAMILIES: Final[Mapping[str, str]] = {
    "SAGEMAKER_TS_": "TorchServe",
    "TS_": "TorchServe",
    "MMS_": "Multi Model Server",
    "SAGEMAKER_TFS_": "TensorFlow Serving",
    "SM_SGLANG_": "SGLang",
    "NGROK": "ngrok",
}
SERVING = "SERVING_"  # Deep Java Library's server: a key of serving.properties each
# Only names with these prefixes, and long ones: a name close to a short one may be another tool's, not a typing error.
GUARDED_PREFIXES: Final = ("HF_", "HUGGING")
GUARDED_LENGTH: Final = len("MAX_BATCH_SIZE")
GUARDED: Final = tuple(
    name for name in (*FIELDS, *ARGUMENTS, WORKERS) if name.startswith(GUARDED_PREFIXES) or len(name) >= GUARDED_LENGTH
)


def reads(name: str) -> bool:
    known = name in FIELDS or name in ARGUMENTS or name in NO_COUNTERPART or name in REJECTED
    return known or name == WORKERS or name.startswith((*FAMILIES, SERVING))


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: the value does not fit, or the variable would change what the endpoint answers."""
    if name == WORKERS:
        return one_process(name, value)
    if name in FIELDS:
        return [assign(FIELDS[name], value, name)]
    if name in ARGUMENTS:
        return engine.translate_argument(ARGUMENTS[name], value, name)
    if name in REJECTED:
        raise SettingError(name, "is a variable of another container, and has no effect here", REJECTED[name])
    if name in NO_COUNTERPART:
        return [unused(name, NO_COUNTERPART[name])]
    if name.startswith(SERVING):
        return lmi.translate_server(name, name.removeprefix(SERVING), value)
    family = next(software for prefix, software in FAMILIES.items() if name.startswith(prefix))
    return [unused(name, f"{family} does not run here")]


def one_process(setting: str, value: Json) -> list[Assignment]:
    """:raises SettingError: the value is another number of processes than 1, or no number."""
    if converted(to_int, value, setting) != 1:
        fix = "Remove it, or set it to 1. For more requests add instances, or copies of the inference component."
        raise SettingError(setting, "one process serves the one engine, so it can only be 1", fix)
    return []
