"""The names of other tools and images, and the fields that they set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handler.config.config_findings import config_findings
from handler.config.dialects.container_variables import NO_COUNTERPART, REJECTED
from handler.config.dialects.vllm_names import is_known
from handler.config.endpoint_config import MIB, EndpointConfig
from handler.config.fields import fields
from handler.config.finding import Severity
from handler.config.loading.config_loader import DIALECTS
from tests.handler.config.reading import one_refusal, read, refused

OURS = {"str": "text", "bool": "true", "int": "2", "float": "2.5", "Path": "/a/b", "tuple[int, ...]": "1, 2"}
OURS |= {"tuple[str, ...]": '["a", "b"]', "Mapping[str, str]": '{"a": "b"}', "Mapping[str, Json]": '{"a": [1]}'}
TYPED = {"str": "text", "bool": True, "int": 2, "float": 2.5, "Path": Path("/a/b"), "tuple[int, ...]": (1, 2)}
TYPED |= {"tuple[str, ...]": ("a", "b"), "Mapping[str, str]": {"a": "b"}, "Mapping[str, Json]": {"a": [1]}}
# engine_args and neuron_env are opened: their keys are names of their own.
OPENED = {"engine_args": ('{"seed": 3}', {"seed": 3}), "neuron_env": ('{"NEURON_RT_LOG_LEVEL": "INFO"}', None)}


@pytest.mark.parametrize("field", [name for name in fields() if name not in OPENED])
def test_every_field_has_its_variable(field: str) -> None:
    kind = fields()[field].kind
    text, value = OURS[kind], TYPED[kind]
    if choices := fields()[field].metadata.choices:
        text = value = choices[0]
    if field == "slot_share":
        text, value = "0.25", 0.25
    if field == "safe_port_range":
        text = value = "8100-8199"
    if field == "artifact_signing_key":
        text = value = "env:NAME"
    config = read({f"ENDPOINT_{field.upper()}": text})
    assert getattr(config, field) == value
    assert any(source.name.startswith(f"ENDPOINT_{field.upper()}") for source in config.sources.values())


def test_the_fields_that_hold_others() -> None:
    config = read({"ENDPOINT_ENGINE_ARGS": '{"seed": 3, "max-num-seqs": 4}', "ENDPOINT_NEURON_ENV": '{"XLA_A": 1}'})
    assert (config.engine_args, config.max_num_seqs, config.neuron_env) == ({"seed": 3}, 4, {"XLA_A": "1"})
    assert config.source("max_num_seqs").name == "ENDPOINT_ENGINE_ARGS.max-num-seqs"


VARIABLES: list[tuple[str, str, str, object]] = [
    # variable, text, field (or field.key), value
    ("ENDPOINT_MAX_BODY_MB", "3", "max_body", 3 * MIB),
    ("ENDPOINT_DTYPE", "bf16", "dtype", "bfloat16"),
    ("ENDPOINT_LORA_MODULES", "a=/x b=/y", "lora_modules", {"a": "/x", "b": "/y"}),
    ("SAGEMAKER_BIND_TO_PORT", "9000", "port", 9000),
    ("SAGEMAKER_BATCH", "true", "batch_transform", True),
    ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "6", "max_payload_mb", 6),
    ("SAGEMAKER_BATCH_STRATEGY", "MULTI_RECORD", "batch_strategy", "MULTI_RECORD"),
    ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", "4", "max_concurrent_transforms", 4),
    ("ENDPOINT_DEADLINE", "30", "deadline", 30.0),
    ("ENDPOINT_MAX_QUEUE", "0", "max_queue", 0),
    ("SAGEMAKER_BASE_DIR", "/elsewhere", "model", "/elsewhere/model"),
    ("SM_VLLM_MODEL", "org/name", "model", "org/name"),
    ("SM_VLLM_MAX_NUM_SEQS", "64", "max_num_seqs", 64),
    ("SM_VLLM_MAX_MODEL_LEN", "8k", "max_model_len", 8000),
    ("SM_VLLM_MAX_MODEL_LEN", "8K", "max_model_len", 8192),
    ("SM_VLLM_ENABLE_PREFIX_CACHING", "false", "enable_prefix_caching", False),
    ("SM_VLLM_NO_ENABLE_PREFIX_CACHING", "true", "enable_prefix_caching", False),
    ("SM_VLLM_ENFORCE_EAGER", " True ", "engine_args.enforce_eager", True),
    ("SM_VLLM_ENFORCE_EAGER", "false", "engine_args.enforce_eager", False),
    ("SM_VLLM_SEED", "-1", "engine_args.seed", -1),
    ("SM_VLLM_GPU_MEMORY_UTILIZATION", "0.5", "engine_args.gpu_memory_utilization", 0.5),
    ("SM_VLLM_SERVED_MODEL_NAME", '["a", "b c"]', "served_model_name", ("a", "b c")),
    ("SM_VLLM_CUDAGRAPH_CAPTURE_SIZES", "[1, 2, 4]", "engine_args.cudagraph_capture_sizes", [1, 2, 4]),
    ("SM_VLLM_ALLOWED_MEDIA_DOMAINS", "a.org", "engine_args.allowed_media_domains", ["a.org"]),
    ("SM_VLLM_HF_OVERRIDES", '{"a": {"b": 1}}', "engine_args.hf_overrides", {"a": {"b": 1}}),
    ("SM_VLLM_LORA_MODULES", '[{"name": "x", "path": "/p"}, "y=/q"]', "lora_modules", {"x": "/p", "y": "/q"}),
    ("SM_VLLM_TOOL_CALL_PARSER", "hermes", "tool_call_parser", "hermes"),
    ("SM_VLLM_ENABLE_AUTO_TOOL_CHOICE", "true", "enable_auto_tool_choice", True),
    ("SM_VLLM_NO_ENABLE_AUTO_TOOL_CHOICE", "true", "enable_auto_tool_choice", False),
    ("SM_VLLM_CHAT_TEMPLATE", "chat.jinja", "chat_template", "chat.jinja"),
    ("SM_VLLM_DEFAULT_CHAT_TEMPLATE_KWARGS", '{"a": 1}', "default_chat_template_kwargs", {"a": 1}),
    ("SM_VLLM_REASONING_PARSER", "qwen3", "engine_args.reasoning_parser", "qwen3"),
    ("OPTION_TOOL_CALL_PARSER", "hermes", "tool_call_parser", "hermes"),
    ("SM_VLLM_QUANTIZATION", "neuron_quant", "quantization", "int8"),
    ("SM_VLLM_DTYPE", "half", "dtype", "float16"),
    ("SM_VLLM_DEVICE", "neuron", "engine_args.device", "neuron"),
    ("SM_VLLM_USE_V2_BLOCK_MANAGER", "true", "engine_args.use_v2_block_manager", True),
    ("SM_VLLM_OVERRIDE_NEURON_CONFIG", '{"shard_over_sequence": true}', "neuron_config.shard_over_sequence", True),
    ("SM_VLLM_SPECULATIVE_MODEL", "org/draft", "speculative_model", "org/draft"),
    ("SM_ON_MODEL", "org/name", "model", "org/name"),
    ("SM_ON_BATCH_SIZE", "4", "max_num_seqs", 4),
    ("SM_ON_SEQUENCE_LENGTH", "4096", "max_model_len", 4096),
    ("SM_ON_TENSOR_PARALLEL_SIZE", "8", "tensor_parallel_size", 8),
    ("SM_ON_SERVED_MODEL_NAME", "a", "served_model_name", ("a",)),
    ("SM_ON_DATA_PARALLEL_SIZE", "2", "engine_args.data_parallel_size", 2),
    ("SM_ON_ENFORCE_EAGER", "", "engine_args.enforce_eager", True),
    ("HF_MODEL_ID", "s3://bucket/model", "model", "s3://bucket/model"),
    ("MODEL_ID", "org/name", "model", "org/name"),
    ("HF_TOKEN", "hf_secret", "hf_token", "hf_secret"),
    ("HUGGING_FACE_HUB_TOKEN", "hf_secret", "hf_token", "hf_secret"),
    ("HF_REVISION", "main", "engine_args.revision", "main"),
    ("HF_MODEL_REVISION", "abc", "engine_args.revision", "abc"),
    ("HF_MODEL_TRUST_REMOTE_CODE", "true", "trust_remote_code", True),
    ("TENSOR_PARALLEL_DEGREE", "8", "tensor_parallel_size", 8),
    ("MAX_BATCH_SIZE", "8", "max_num_seqs", 8),
    ("MAX_CONCURRENT_REQUESTS", "77", "max_concurrent", 77),
    ("MAX_TOTAL_TOKENS", "4096", "max_model_len", 4096),
    ("SM_NUM_GPUS", "2", "tensor_parallel_size", 2),
    ("NUM_SHARD", "2", "tensor_parallel_size", 2),
    ("HF_NUM_CORES", "8", "tensor_parallel_size", 8),
    ("HF_BATCH_SIZE", "4", "max_num_seqs", 4),
    ("HF_SEQUENCE_LENGTH", "2048", "max_model_len", 2048),
    ("HF_OPTIMUM_SEQUENCE_LENGTH", "2048", "max_model_len", 2048),
    ("HF_AUTO_CAST_TYPE", "bf16", "dtype", "bfloat16"),
    ("HF_AUTO_CAST_TYPE", "fp32", "dtype", "float32"),
    ("HF_MODEL_QUANTIZE", "awq", "quantization", "awq"),
    ("LORA_ADAPTERS", "a=/x,b=/y", "lora_modules", {"a": "/x", "b": "/y"}),
    (
        "SM_VLLM_OVERRIDE_NEURON_CONFIG",
        '{"lora_modules": {"a": "/x", "b": "/y"}}',
        "lora_modules",
        {"a": "/x", "b": "/y"},
    ),
    ("SM_VLLM_OVERRIDE_NEURON_CONFIG", '{"lora_modules": [{"name": "a", "path": "/x"}]}', "lora_modules", {"a": "/x"}),
    ("SM_VLLM_OVERRIDE_NEURON_CONFIG", '{"lora_modules": null}', "lora_modules", {}),
    ("ENDPOINT_NEURON_CONFIG", '{"lora-modules": {"a": "/x"}}', "lora_modules", {"a": "/x"}),
    ("SERVING_JOB_QUEUE_SIZE", "9", "max_concurrent", 9),
    ("NEURON_COMPILED_ARTIFACTS", "s3://bucket/neff/", "compiled_artifacts", "s3://bucket/neff/"),
    ("NEURON_CONTEXT_LENGTH_BUCKETS", "128,512,1024", "context_encoding_buckets", (128, 512, 1024)),
    ("NEURON_TOKEN_GEN_BUCKETS", "128, 512", "token_generation_buckets", (128, 512)),
    ("NEURON_QUANT_DTYPE", "s8", "quantization", "int8"),
    ("NEURON_ON_DEVICE_SAMPLING_DISABLED", "1", "on_device_sampling", False),
    ("NEURON_ON_DEVICE_SAMPLING_DISABLED", "0", "on_device_sampling", None),
    ("DISABLE_NEURON_CUSTOM_SCHEDULER", "1", "enable_chunked_prefill", True),
    ("DISABLE_NEURON_CUSTOM_SCHEDULER", "0", "enable_chunked_prefill", None),
    ("NEURON_LOGICAL_NC_CONFIG", "2", "logical_nc_config", 2),
    *(
        (name, value, f"neuron_env.{name}", value)
        for name, value in {
            "VLLM_NEURON_FRAMEWORK": "transformers-neuronx",
            "BASE_COMPILE_WORK_DIR": "/tmp/work",
            "NEURON_CC_FLAGS": "--model-type=transformer -O1",
            "XLA_HANDLE_SPECIAL_SCALAR": "1",
            "UNSAFE_FP8FNCAST": "1",
            "NEURON_RT_VISIBLE_CORES": "0-7",
            "XLA_DENSE_GATHER_FACTOR": "0",
            "NEURON_SOMETHING_NEW": "x",
        }.items()
    ),
    ("OPTION_MODEL_ID", "org/name", "model", "org/name"),
    ("OPTION_REVISION", "abc", "engine_args.revision", "abc"),
    ("OPTION_TRUST_REMOTE_CODE", "true", "trust_remote_code", True),
    ("OPTION_TENSOR_PARALLEL_DEGREE", "24", "tensor_parallel_size", 24),
    ("OPTION_TENSOR_PARALLEL_DEGREE", "max", "tensor_parallel_size", None),
    ("OPTION_ROLLING_BATCH", "auto", "max_num_seqs", None),
    ("OPTION_ROLLING_BATCH", "disable", "max_num_seqs", None),
    ("OPTION_TASK", "text-embedding", "engine_args.runner", "pooling"),
    ("OPTION_MAX_ROLLING_BATCH_SIZE", "8", "max_num_seqs", 8),
    ("OPTION_MAX_ROLLING_BATCH_PREFILL_TOKENS", "32768", "engine_args.max_num_batched_tokens", 32768),
    ("OPTION_N_POSITIONS", "4096", "max_model_len", 4096),
    ("OPTION_DTYPE", "fp16", "dtype", "float16"),
    ("OPTION_AMP", "bf16", "dtype", "bfloat16"),
    ("OPTION_QUANTIZE", "static_int8", "quantization", "int8"),
    ("OPTION_LOAD_IN_8BIT", "true", "quantization", "int8"),
    ("OPTION_LOAD_IN_8BIT", "false", "quantization", None),
    ("OPTION_CONTEXT_LENGTH_ESTIMATE", "256,512,1024", "context_encoding_buckets", (256, 512, 1024)),
    ("OPTION_SPECULATIVE_DRAFT_MODEL", "org/draft", "speculative_model", "org/draft"),
    ("OPTION_SPECULATIVE_LENGTH", "5", "num_speculative_tokens", 5),
    ("OPTION_COMPILED_GRAPH_PATH", "s3://b/neff", "neuron_env.NEURON_COMPILE_CACHE_URL", "s3://b/neff"),
    ("OPTION_DRAFT_MODEL_COMPILED_PATH", "s3://b/neff", "neuron_env.NEURON_COMPILE_CACHE_URL", "s3://b/neff"),
    ("OPTION_NEURON_OPTIMIZE_LEVEL", "3", "neuron_env.NEURON_CC_FLAGS", "-O3"),
    ("OPTION_ENABLE_SATURATE_INFINITY", "true", "neuron_env.NEURON_CC_FLAGS", "--enable-saturate-infinity"),
    ("OPTION_FUSE_QKV", "true", "fused_qkv", True),
    ("OPTION_SEQUENCE_PARALLEL", "true", "sequence_parallel_enabled", True),
    ("OPTION_NEURON_CC_PIPELINE_FACTOR", "2", "neuron_config.cc_pipeline_tiling_factor", 2),
    ("OPTION_MODEL_LOADER", "optimum", "line", "optimum"),
    ("OPTION_ENABLE_LORA", "true", "enable_lora", True),
    ("OPTION_OVERRIDE_NEURON_CONFIG", '{"async_mode": true}', "neuron_config.async_mode", True),
    ("OPTION_MAX_MODEL_LEN", "128", "max_model_len", 128),
    ("OPTION_UNROLL", "false", "max_model_len", None),
    ("OPTION_ENTRYPOINT", "djl_python.transformers_neuronx", "max_model_len", None),
]


@pytest.mark.parametrize(("name", "text", "target", "value"), VARIABLES)
def test_a_variable_and_its_meaning(name: str, text: str, target: str, value: object) -> None:
    config = read({name: text})
    field, _, key = target.partition(".")
    found = getattr(config, field)
    assert (found[key] if key else found) == value
    if value is not None:
        assert config.source(target).name.startswith(name)


def test_what_nobody_set_is_left_to_the_line() -> None:
    assert read({}) == EndpointConfig()
    assert str(read({}).source("max_num_seqs")) == "default"


def test_other_peoples_variables_are_theirs() -> None:
    others = [
        "PATH",
        "VLLM_LOGGING_LEVEL",
        "SAGEMAKER_REGION",
        "HF_HOME",
        "HF_HUB_CACHE",
    ]
    others += [
        "AWS_REGION",
        "MY_ENDPOINT_X",
        "MODEL_NAME",
        "TRANSFORMERS_CACHE",
        "MODEL_DIR",
    ]
    assert read(dict.fromkeys(others, "x")) == EndpointConfig()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ENDPOINT_MODLE", "ENDPOINT_MODEL"),
        ("ENDPOINT_MAX_CONCURENT", "ENDPOINT_MAX_CONCURRENT"),
        ("ENDPOINT_RESTARTS", "ENDPOINT_ENGINE_RESTARTS"),
        ("ENDPOINT_TENSOR_PARALLEL", "ENDPOINT_TENSOR_PARALLEL_SIZE"),
        ("SM_VLLM_MAX_NUM_SEQ", "SM_VLLM_MAX_NUM_SEQS"),
        ("SM_VLLM_XX_SEED", "SM_VLLM_SEED"),
        ("SM_VLLM_TENSOR_PARALLEL_DEGREE", "SM_VLLM_TENSOR_PARALLEL_SIZE"),
        ("SM_ON_BATCHSIZE", "SM_ON_BATCH_SIZE"),
        ("OPTION_N_POSITION", "OPTION_N_POSITIONS"),
        ("OPTION_MAX_ROLLING_BATCH", "OPTION_MAX_ROLLING_BATCH_SIZE"),
        ("NEURON_COMPILED_ARTIFACT", "NEURON_COMPILED_ARTIFACTS"),
        ("NEURON_CONTEXT_LENGHT_BUCKETS", "NEURON_CONTEXT_LENGTH_BUCKETS"),
        ("VLLM_NEURON_FRAMEWORKS", "VLLM_NEURON_FRAMEWORK"),
        ("DISABLE_NEURON_CUSTOM_SCHEDULAR", "DISABLE_NEURON_CUSTOM_SCHEDULER"),
        ("UNSAFE_FP8FN_CAST", "UNSAFE_FP8FNCAST"),
        ("BASE_COMPILE_WORKDIR", "BASE_COMPILE_WORK_DIR"),
        ("HF_MODEL_IDS", "HF_MODEL_ID"),
        ("MAX_TOTAL_TOKEN", "MAX_TOTAL_TOKENS"),
        ("TENSOR_PARALLEL_DEGRE", "TENSOR_PARALLEL_DEGREE"),
        ("SAGEMAKER_MAX_PAYLOAD_MB", "SAGEMAKER_MAX_PAYLOAD_IN_MB"),
    ],
)
def test_a_slip_is_an_error_that_names_the_right_one(name: str, meant: str) -> None:
    error = one_refusal({name: "1"})
    assert error.setting == name
    assert f"Did you mean {meant}?" in error.message


@pytest.mark.parametrize("prefix", ["ENDPOINT_", "SM_VLLM_", "SM_ON_", "OPTION_"])
def test_an_unknown_name_that_is_near_none(prefix: str) -> None:
    error = one_refusal({f"{prefix}{'Z' * 40}": "x"})
    assert "Did you mean" not in error.message


@pytest.mark.parametrize(
    "argument", ["HOST", "PORT", "SSL_KEYFILE", "API_SERVER_COUNT", "API_KEY", "UVICORN_LOG_LEVEL"]
)
@pytest.mark.parametrize("prefix", ["SM_VLLM_", "SM_ON_", "OPTION_"])
def test_arguments_of_vllms_http_server_are_rejected(prefix: str, argument: str) -> None:
    error = one_refusal({prefix + argument: "8000"})
    assert error.setting == prefix + argument
    assert "server" in error.problem
    assert ("SAGEMAKER_BIND_TO_PORT" in error.fix) is (argument == "PORT")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("OPTION_UNROLL", "1", "transformers-neuronx"),
        ("OPTION_ATTENTION_LAYOUT", "BSH", "layout"),
        ("OPTION_GROUP_QUERY_ATTENTION", "shard-over-heads", "KV heads"),
        ("OPTION_DRAFT_MODEL_TP_SIZE", "2", "degree"),
        ("OPTION_ROLLING_BATCH", "trtllm", "vLLM"),
        ("OPTION_BATCH_SIZE", "4", "max_rolling_batch_size"),
        ("OPTION_TASK", "text-classification", "embeddings"),
        ("OPTION_LOAD_SPLIT_MODEL", "true", "save_sharded_checkpoint"),
        ("OPTION_INPUT_FORMATTER", "mine", "request"),
        ("OPTION_ENTRYPOINT", "model.py", "handler"),
        ("OPTION_ON_DEVICE_GENERATION", "/a/file.json", "file"),
        ("OPTION_NEURON_OPTIMIZE_LEVEL", "9", "level"),
        ("SM_ON_TASK", "embed", "task"),
        ("VLLM_NEURON_FRAMEWORK", "nxdi", "framework"),
    ],
)
def test_an_unsupported_option_is_rejected_with_the_reason(name: str, text: str, reason: str) -> None:
    error = one_refusal({name: text})
    assert error.setting == name
    assert reason in error.problem


@pytest.mark.parametrize(
    "name",
    ["OPTION_ASYNC_MODE", "OPTION_MODEL_LOADING_TIMEOUT", "OPTION_PARALLEL_LOADING", "SM_ON_ALLOW_NON_CACHED_MODEL"],
)
def test_what_has_no_effect_is_kept_with_the_reason(name: str) -> None:
    config = read({name: "1600"})
    assert list(config.unused) == [name]
    assert config.unused[name]


@pytest.mark.parametrize(
    "name", ["ENFORCE_EAGER", "ENABLE_AUTO_TOOL_CHOICE", "NO_ENABLE_PREFIX_CACHING", "TRUST_REMOTE_CODE"]
)
def test_an_empty_flag_is_not_set_and_told_because_other_images_take_it_as_true(name: str) -> None:
    config = read({f"SM_VLLM_{name}": " ", "SM_VLLM_SEED": "", "SM_VLLM_NOTHING": ""})
    assert (config.engine_args, config.enable_auto_tool_choice, config.enable_prefix_caching) == ({}, False, None)
    (finding,) = config_findings(config)
    assert (finding.setting, finding.severity) == (f"SM_VLLM_{name}", Severity.WARNING)
    assert finding.fix == "Write true, or remove it."


@pytest.mark.parametrize(
    ("name", "value", "companion", "on"),
    [
        ("ENDPOINT_MAX_MODELS", "2", "ENDPOINT_MULTI_MODEL", "true"),
        ("ENDPOINT_UNLOAD_LEAST_USED", "true", "ENDPOINT_MULTI_MODEL", "true"),
        ("SAGEMAKER_SESSIONS_EXPIRATION", "10", "ENDPOINT_ENABLE_SESSIONS", "true"),
        ("ENDPOINT_ARTIFACT_SIGNING_KEY", "file:///k", "ENDPOINT_ARTIFACT_STORE", "file:///store"),
    ],
)
def test_a_setting_that_counts_only_beside_another_is_told(name: str, value: str, companion: str, on: str) -> None:
    (finding,) = config_findings(read({name: value}))
    assert (finding.code, finding.setting, finding.severity) == ("no-effect", name, Severity.INFO)
    assert finding.fix == f"Set {companion}, or remove it."
    assert config_findings(read({name: value, companion: on})) == ()


@pytest.mark.parametrize("text", ["a.com,b.com", "a.com, b.com", "a.com b.com", '["a.com,b.com"]'])
def test_a_list_that_is_one_item_of_several_is_told(text: str) -> None:
    (finding,) = config_findings(read({"SM_VLLM_ALLOWED_MEDIA_DOMAINS": text}))
    assert finding.setting == "SM_VLLM_ALLOWED_MEDIA_DOMAINS"
    assert finding.fix == 'Write ["...", "..."], as JSON.'
    plain = {"SM_VLLM_ALLOWED_MEDIA_DOMAINS": '["a.com", "b.com"]', "SM_VLLM_COLLECT_DETAILED_TRACES": "model,worker"}
    assert config_findings(read(plain)) == ()


@pytest.mark.parametrize("name", [*NO_COUNTERPART, "SERVING_FAIL_FAST", "SAGEMAKER_TS_BATCH_SIZE", "MMS_NETTY_THREADS"])
def test_a_variable_of_another_container_is_a_finding(name: str) -> None:
    (finding,) = config_findings(read({name: "3"}))
    assert (finding.code, finding.setting, finding.severity) == ("no-effect", name, Severity.INFO)


@pytest.mark.parametrize("name", list(REJECTED))
def test_a_variable_that_would_change_answers_is_an_error(name: str) -> None:
    error = one_refusal({name: "fp8"})
    assert (error.setting, error.fix) == (name, REJECTED[name])


def test_the_reasons_name_settings_that_there_are() -> None:
    named = re.findall(
        r"\b(?:ENDPOINT|SM_VLLM|HF|SAGEMAKER)_[A-Z_]+", " ".join((*NO_COUNTERPART.values(), *REJECTED.values()))
    )
    assert len(named) > 20
    for name in named:
        assert any(dialect.reads(name) for dialect in DIALECTS), name
        assert name.removeprefix("ENDPOINT_").lower() in fields() or not name.startswith("ENDPOINT_")
        assert is_known(name.removeprefix("SM_VLLM_")) or not name.startswith("SM_VLLM_")


ONE, OTHER = '{"name": "a", "path": "/x"}', '{"name": "b", "path": "/y"}'


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE} {OTHER}",
        f"{ONE}, {OTHER}",
        f"[{ONE}, {OTHER}]",
        f"{ONE}\n{OTHER}",
        "a=/x b=/y",
        "a=/x,b=/y",
        "a=/x, b=/y",
        '["a=/x", "b=/y"]',
        '{"a": "/x", "b": "/y"}',
    ],
)
def test_vllms_forms_of_several_adapters(text: str) -> None:
    assert read({"SM_VLLM_LORA_MODULES": text}).lora_modules == {"a": "/x", "b": "/y"}


@pytest.mark.parametrize("text", [f"{ONE} b", "a=/x b", "a", f"[{ONE}, 3]"])
def test_any_other_form_is_an_error_that_has_the_forms(text: str) -> None:
    error = one_refusal({"SM_VLLM_LORA_MODULES": text})
    assert error.setting.startswith("SM_VLLM_LORA_MODULES")
    assert "name=path" in error.fix or "JSON" in error.fix


BAD = [
    ("ENDPOINT_PORT", ["-1", "65536", "x", "1.5", "9" * 5000]),
    ("ENDPOINT_MAX_CONCURRENT", ["0", "4097"]),
    ("ENDPOINT_MAX_BODY_MB", ["0", "1025", "x"]),
    ("ENDPOINT_DRAIN", ["-0.1", "3601", "nan", "inf", "1,5", "1_0", "\u0661", "1_0.5", "\uff11"]),
    ("ENDPOINT_STALL", ["0.9", "3601"]),
    ("ENDPOINT_LOGICAL_NC_CONFIG", ["0", "3", "two"]),
    ("ENDPOINT_LOG_REQUESTS", ["yes please", "2"]),
    ("ENDPOINT_DTYPE", ["int4"]),
    ("ENDPOINT_SPECULATION", ["lookahead"]),
    ("ENDPOINT_CONTEXT_ENCODING_BUCKETS", ["a", "1,x", "[]", "0", "[1,", "1;2"]),
    ("ENDPOINT_NEURON_CONFIG", ["[1]", "{", "x", '{"a": NaN}', '{"a": 1, "a": 2}', '{"": null}', "[" * 100_000]),
    ("ENDPOINT_ENGINE_ARGS", ['{"sead": 1}', '{"seed": "x"}']),
    ("ENDPOINT_NEURON_ENV", ['{"a b": "x"}', '{"NEURON_RT_LOG_LEVEL": [1]}', '{"NEURON_COMPILED_ARTIFACT": "x"}']),
    ("ENDPOINT_MODEL", ['"org/name"', "'org/name'", "a\udcff"]),
    ("SM_VLLM_MAX_NUM_SEQS", ["many", "0"]),
    ("SM_VLLM_ENFORCE_EAGER", ["maybe"]),
    ("SM_VLLM_SCHEDULING_POLICY", ["lifo"]),
    ("SM_VLLM_ADDITIONAL_CONFIG", ["[1]", "{", '{"override_neuron_config": 3}']),
    ("SM_VLLM_LORA_MODULES", ["x", "[1]", '["a=/x", "a=/y"]']),
    ("SM_VLLM_SPECULATIVE_CONFIG", ['{"num_speculative_tokens": "x"}']),
    ("NEURON_LOGICAL_NC_CONFIG", ["4"]),
    ("NEURON_CONTEXT_LENGTH_BUCKETS", ["128;512"]),
    ("NEURON_ON_DEVICE_SAMPLING_DISABLED", ["perhaps"]),
    ("HF_MODEL_TRUST_REMOTE_CODE", ["perhaps"]),
    ("SAGEMAKER_MODEL_SERVER_WORKERS", ["2", "64", "0", "x"]),
]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD for text in texts])
def test_an_invalid_value_is_an_error_with_the_setting(name: str, text: str) -> None:
    error = one_refusal({name: text})
    assert error.setting.startswith(name)
    assert error.fix
    assert len(error.message) < 1000


@pytest.mark.parametrize("setting", ["SAGEMAKER_MODEL_SERVER_WORKERS", "ENDPOINT_FRONT_ENDS", "front_ends"])
def test_one_process_serves(setting: str) -> None:
    def environ(value: str) -> dict[str, str]:
        return {setting: value} if setting.isupper() else {"ENDPOINT_CONFIG": f'{{"front_ends": {value or "null"}}}'}

    error = one_refusal(environ("2"))
    assert error.setting.startswith(setting)
    assert "instances" in error.fix
    assert "set it to 1" in error.fix
    for value in ("1", ""):
        assert read(environ(value)) == read({})


def test_every_problem_is_reported_at_once() -> None:
    errors = refused({"ENDPOINT_PORT": "x", "ENDPOINT_MODL": "x", "SM_VLLM_PORT": "1", "OPTION_UNROLL": "1"})
    assert {error.setting for error in errors} == {"ENDPOINT_PORT", "ENDPOINT_MODL", "SM_VLLM_PORT", "OPTION_UNROLL"}


def test_the_three_arguments_that_are_opened() -> None:
    config = read(
        {
            "SM_VLLM_ADDITIONAL_CONFIG": '{"override_neuron_config": {"on_device_sampling_config": null, "seq_len": 9},'
            ' "max_prompt_length": 5}',
            "SM_VLLM_SPECULATIVE_CONFIG": '{"model": "org/draft", "num_speculative_tokens": 4, "method": "eagle",'
            ' "x": 1}',
        }
    )
    assert config.neuron_config == {"on_device_sampling_config": None, "seq_len": 9}
    assert (config.speculative_model, config.num_speculative_tokens, config.speculation) == ("org/draft", 4, "eagle")
    assert config.engine_args == {"additional_config": {"max_prompt_length": 5}, "speculative_config": {"x": 1}}


def test_a_method_of_speculation_that_is_vllms_own_stays_whole() -> None:
    config = read({"SM_VLLM_SPECULATIVE_CONFIG": '{"method": "ngram", "num_speculative_tokens": 4}'})
    assert config.engine_args == {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}


def test_the_multimodal_configurations_have_fields() -> None:
    override = '{"text_neuron_config": {"a": 1}, "vision_neuron_config": {"b": 2}}'
    config = read({"SM_VLLM_OVERRIDE_NEURON_CONFIG": override})
    assert (config.text_neuron_config, config.vision_neuron_config, config.neuron_config) == ({"a": 1}, {"b": 2}, {})


def test_compiler_flags_add_up() -> None:
    environ = {"NEURON_CC_FLAGS": "--x", "OPTION_NEURON_OPTIMIZE_LEVEL": "2", "OPTION_ENABLE_SATURATE_INFINITY": "true"}
    assert read(environ).neuron_env == {"NEURON_CC_FLAGS": "--x --enable-saturate-infinity -O2"}


def test_lmis_reply_forms_are_settings() -> None:
    config = read({"OPTION_OUTPUT_FORMATTER": "sse", "OPTION_TGI_COMPAT": "true"})
    assert (config.output_formatter, config.inputs_schema) == ("sse", "tgi")
    assert read({"OPTION_TGI_COMPAT": "false"}).inputs_schema == "lmi"
    assert "jsonlines" in one_refusal({"OPTION_OUTPUT_FORMATTER": "jsonlines_chat"}).fix
