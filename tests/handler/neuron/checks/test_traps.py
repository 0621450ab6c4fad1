"""Traps of vLLM on Neuron that no guide names: each a finding with its code, setting and fix. tests/guides has more."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.config.vllm_verdicts import rejections
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import TRN1, TRN2, found, llama, outcome, planned

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
DRAFT: dict[str, Any] = {"speculative_model": "/models/draft", "num_speculative_tokens": 5}
QUANTIZED = {"quantized": True, "quantized_checkpoints_path": "/q"}
SAMPLING = "NEURON_ON_DEVICE_SAMPLING_DISABLED"
Trap = tuple[str, dict[str, Any], Severity, str]


def args(**arguments: Any) -> dict[str, Any]:
    return {"engine_args": arguments}


def keys(**config: Any) -> dict[str, Any]:
    return {"neuron_config": config}


def variables(**environ: str) -> dict[str, Any]:
    return {"neuron_env": environ}


TRAPS: dict[str, Trap] = {
    # Starting at all.
    "too-few-blocks": (
        "nxdi-0.16",
        {
            "enable_prefix_caching": True,
            "max_num_seqs": 4,
            "max_model_len": 1000,
            "block_size": 32,
            "num_gpu_blocks_override": 124,
        },
        ERROR,
        "num_gpu_blocks_override",
    ),
    "block-size-unused": ("nxdi-0.16", {"block_size": 32, "max_model_len": 128}, WARNING, "block_size"),
    "length-beyond-model": ("nxdi-0.16", {"max_model_len": 200_000}, WARNING, "max_model_len"),
    "token-budget-replaced": ("nxdi-0.16", args(max_num_batched_tokens=4096), WARNING, "max_num_batched_tokens"),
    # Spelling.
    "hyphenated-override": (
        "nxdi-0.16",
        args(additional_config={"override-neuron-config": {"skip_warmup": True}}),
        WARNING,
        "additional_config.override-neuron-config",
    ),
    # Quantization.
    "quantization-defaults": ("nxdi-0.16", {"neuron_config": QUANTIZED}, WARNING, "quantized"),
    "all-modules-quantized": (
        "nxdi-0.16",
        {"quantization": "int8", "quantized_checkpoints_path": "/q"},
        INFO,
        "modules_to_not_convert",
    ),
    "fp8-variable": (
        "nxdi-0.16",
        {"quantization": "fp8", "quantized_checkpoints_path": "/q", **variables(XLA_HANDLE_SPECIAL_SCALAR="0")},
        ERROR,
        "XLA_HANDLE_SPECIAL_SCALAR",
    ),
    "quantization-from-checkpoint": ("native-0.24", {"quantization": "fp8"}, WARNING, "quantization"),
    # Sampling.
    "global-topk-unused": ("nxdi-0.16", {"global_topk": 64, "on_device_sampling": False}, WARNING, "global_topk"),
    "sampling-variable": ("nxdi-0.16", {"neuron_env": {SAMPLING: "1"}}, WARNING, SAMPLING),
    "needs-on-device-sampling": ("nxdi-0.16", {**DRAFT, "on_device_sampling": False}, ERROR, "on_device_sampling"),
    # Lengths and caches.
    "max-prompt-length": (
        "nxdi-0.16",
        {"max_model_len": 2048, "max_context_length": 1024, **args(additional_config={"max_prompt_length": 2048})},
        ERROR,
        "additional_config.max_prompt_length",
    ),
    "prefix-caching-batch": (
        "nxdi-0.16",
        {"enable_prefix_caching": True, "max_num_seqs": 1},
        ERROR,
        "enable_prefix_caching",
    ),
    # Cores.
    "too-many-cores": ("nxdi-0.16", {"tensor_parallel_size": 128, "instance": TRN2}, ERROR, "tensor_parallel_size"),
    "padded-heads": ("nxdi-0.16", {"tensor_parallel_size": 24}, INFO, "tensor_parallel_size"),
    "lnc": ("nxdi-0.16", {"logical_nc_config": 2, "instance": TRN1}, ERROR, "logical_nc_config"),
    "visible-cores": (
        "nxdi-0.16",
        {"tensor_parallel_size": 8, **variables(NEURON_RT_VISIBLE_CORES="0-3")},
        ERROR,
        "NEURON_RT_VISIBLE_CORES",
    ),
    "older-lnc": (
        "nxdi-0.16",
        {"instance": TRN1, **variables(NEURON_RT_VIRTUAL_CORE_SIZE="2")},
        WARNING,
        "NEURON_RT_VIRTUAL_CORE_SIZE",
    ),
    # Drafts, adapters, checkpoints, artifacts.
    "eagle-lm-head": (
        "nxdi-0.16",
        {"speculation": "eagle", "speculative_model": "yuhuili/EAGLE-x", "num_speculative_tokens": 5},
        WARNING,
        "speculative_model",
    ),
    "draft-model-undocumented": ("nxdi-0.16", DRAFT, INFO, "speculative_model"),
    "speculation-with-lora": (
        "fork-0.9.1",
        {**DRAFT, "lora_modules": {"a": "/a"}, "lora_target_modules": ("q_proj",)},
        ERROR,
        "enable_lora",
    ),
    "lora-not-local": (
        "nxdi-0.16",
        {"lora_modules": {"sql": "org/adapter"}, "lora_target_modules": ("q_proj",)},
        ERROR,
        "lora_modules",
    ),
    "lora-without-adapters": (
        "nxdi-0.16",
        {"enable_lora": True, "lora_target_modules": ("q_proj",)},
        ERROR,
        "enable_lora",
    ),
    "lora-without-target-modules": ("nxdi-0.16", {"lora_modules": {"a": "/a"}}, ERROR, "lora_target_modules"),
    "too-few-loras": (
        "nxdi-0.16",
        {"lora_modules": {"a": "/a", "b": "/b"}, "max_loras": 1, "lora_target_modules": ("q_proj",)},
        ERROR,
        "max_loras",
    ),
    "tied-embeddings": (
        "nxdi-0.16",
        {"model": "org/small", "facts": llama(local=False, tied_embeddings=True)},
        ERROR,
        "model",
    ),
    "artifacts-maybe-unread": ("native-0.24", {"compiled_artifacts": "/a"}, WARNING, "compiled_artifacts"),
    # Multimodal.
    "multimodal-override": (
        "nxdi-0.16",
        {"vision_neuron_config": {"skip_warmup": True}, **keys(cc_pipeline_tiling_factor=1)},
        ERROR,
        "cc_pipeline_tiling_factor",
    ),
    # The native plugin.
    "variable-unread": (
        "native-0.24",
        variables(VLLM_NEURON_COMPILATION_TIMEOUT="1200"),
        WARNING,
        "VLLM_NEURON_COMPILATION_TIMEOUT",
    ),
    "eager-left-out": ("native-0.24", args(enforce_eager=True), WARNING, "enforce_eager"),
    "executor-replaced": (
        "native-0.24",
        args(distributed_executor_backend="ray"),
        WARNING,
        "distributed_executor_backend",
    ),
    "load-format-unread": ("native-0.24", args(load_format="dummy"), WARNING, "load_format"),
    "revision-unread": ("native-0.29", {"model": "org/name", **args(revision="v1.0")}, WARNING, "revision"),
    "sampling-key-unread": (
        "native-0.24",
        keys(on_device_sampling_config={"temperature": "0"}),
        WARNING,
        "on_device_sampling_config.temperature",
    ),
    "language-only-nested": (
        "native-0.24",
        {"vision_neuron_config": {"mm_language_model_only": True}},
        ERROR,
        "vision_neuron_config.mm_language_model_only",
    ),
    # The fork.
    "additional-config-unread": (
        "fork-0.9.1",
        args(additional_config={"max_prompt_length": 1024}),
        WARNING,
        "additional_config",
    ),
}


@pytest.mark.parametrize("code", TRAPS)
def test_a_trap_is_found_with_a_fix_that_works(code: str) -> None:
    line, given, severity, setting = TRAPS[code]
    settings = {"facts": llama(), **given}
    result = outcome(line, **settings)
    finding = found(result, code)
    assert finding.severity is severity
    assert finding.setting == setting
    assert finding.why
    assert finding.fix
    assert (result.plan is None) is bool(result.errors)


@pytest.mark.parametrize(
    "settings",
    [
        args(load_format="safetensors"),
        args(load_format="auto"),
        args(revision="v1.0"),  # of a directory
        {"model": "org/name", **args(revision="main")},
    ],
)
def test_weights_that_the_native_plugin_loads_as_they_are_asked_for(settings: dict[str, Any]) -> None:
    codes = {finding.code for finding in outcome("native-0.29", facts=llama(), **settings).findings}
    assert not codes & {"load-format-unread", "revision-unread"}


def test_fp8_of_a_checkpoint_that_has_it_is_nothing_to_warn_of() -> None:
    fp8 = llama(config={"quantization_config": {"quant_method": "modelopt"}})
    result = outcome("native-0.29", quantization="fp8", facts=fp8)
    assert found(result, "quantization-from-checkpoint").severity is INFO


# Settings that are rejected when they are read, before there is a plan.
UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"max_num_seqs": 0}, "max_num_seqs"),
    ({"engine_args": {"max_num_seqs": "many"}}, "max_num_seqs"),
    ({"tensor_parallel_size": -1}, "tensor_parallel_size"),
    ({"context_encoding_buckets": [0, 128]}, "context_encoding_buckets"),
    (
        {"engine_args": {"additional_config": '--"override-neuron-config" {"enable_bucketing": true}'}},
        "additional_config",
    ),
    ({"neuron_env": {"VLLM_NEURON_FRAMEWORK": "neuron"}}, "VLLM_NEURON_FRAMEWORK"),
    ({"disaggregation": "both"}, "disaggregation"),
    ({"dtype": "int4"}, "dtype"),
]


@pytest.mark.parametrize(("settings", "setting"), UNREADABLE)
def test_a_value_that_cannot_be_read_is_rejected_with_its_setting(settings: dict[str, Any], setting: str) -> None:
    result = outcome("nxdi-0.16", **settings)
    (finding,) = result.errors
    assert (finding.code, finding.setting, result.plan) == ("invalid-setting", setting, None)
    assert finding.fix


def _compressed(targets: str = "Linear", **group: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": [targets], **group}}
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}}


# vLLM has a model of this name, and the plugin has not.
LATE_NAME = llama(architectures=("LlamaForCausalLMEagle3",))
NATIVE_REJECTS: list[tuple[dict[str, Any], str, str]] = [
    (args(scheduling_policy="priority"), "not-on-native", "scheduling_policy"),
    (args(pipeline_parallel_size=2), "not-on-native", "pipeline_parallel_size"),
    (args(kv_offloading_size=4.0), "not-on-native", "kv_offloading_size"),
    (
        args(kv_transfer_config={"kv_connector": "OffloadingConnector"}),
        "not-on-native",
        "kv_transfer_config.kv_connector",
    ),
    (variables(VLLM_USE_V2_MODEL_RUNNER="1"), "not-on-native", "VLLM_USE_V2_MODEL_RUNNER"),
    (variables(NEURON_RT_VISIBLE_CORES="0-7"), "visible-cores", "NEURON_RT_VISIBLE_CORES"),
    (variables(NEURON_VISIBLE_DEVICES="0-3"), "visible-cores", "NEURON_VISIBLE_DEVICES"),
    ({"enable_lora": True}, "unsupported-by-line", "enable_lora"),
    (keys(attention_dp_size=2), "degree", "attention_dp_size"),
    (keys(mlp_dp_size=0), "degree", "mlp_dp_size"),
    (
        {"disaggregation": "decode", **args(data_parallel_size=4), **keys(attention_dp_size=3)},
        "degree",
        "attention_dp_size",
    ),
    (
        keys(on_device_sampling_config={"sampling_dp_degree": 3}),
        "degree",
        "on_device_sampling_config.sampling_dp_degree",
    ),
    (
        {**args(data_parallel_size=2), **variables(NEURON_VISIBLE_DEVICES="0-7")},
        "visible-cores",
        "NEURON_VISIBLE_DEVICES",
    ),
    (
        {"facts": llama(config={"rope_scaling": {"type": "linear", "factor": 4.0}})},
        "rotary-embedding",
        "model",
    ),
    ({**DRAFT, "speculation": "eagle3", "draft_model": LATE_NAME}, "draft-architecture", "speculative_model"),
    (args(enable_expert_parallel=True), "degree", "enable_expert_parallel"),
    (keys(kv_segment_size_buckets=[512, 1024]), "segment-sizes", "kv_segment_size_buckets"),
    (args(max_num_batched_tokens=3000), "segment-sizes", "max_num_batched_tokens"),
    ({"max_model_len": 200_000}, "length-beyond-model", "max_model_len"),
    ({"facts": llama(architectures=("Qwen2ForCausalLM",), model_type="qwen2")}, "unsupported-model", "model"),
    ({"on_device_sampling": False, "async_mode": True}, "needs-synchronous-scheduling", "async_mode"),
    ({"logprobs": True, **args(async_scheduling=True)}, "needs-synchronous-scheduling", "async_scheduling"),
    (args(speculative_config={"method": "dflash"}), "unknown-speculation", "speculative_config"),
    ({**DRAFT, "speculation": "eagle3", "logprobs": True}, "speculation-with-logprobs", "logprobs"),
    ({"max_model_len": 1000, "tensor_parallel_size": 16}, "prefill-ranks", "max_model_len"),
    ({"max_model_len": 16, "tensor_parallel_size": 16}, "prefill-ranks", "max_model_len"),
    (
        {"max_model_len": 1024, "tensor_parallel_size": 32, "context_encoding_buckets": [32, 1024]},
        "prefill-ranks",
        "context_encoding_buckets",
    ),
    (keys(quantization="int4"), "not-on-native", "quantization"),
    (keys(quantization="MXFP8"), "not-on-native", "quantization"),
    ({"quantization": "mxfp6"}, "not-on-native", "quantization"),
    ({"quantization": "mxfp8"}, "model-quantization", "quantization"),
    (
        {"facts": llama(architectures=("GptOssForCausalLM",), model_type="gpt_oss"), "quantization": "mxfp8"},
        "model-quantization",
        "quantization",
    ),
    ({"facts": llama(config=_compressed(weights={"num_bits": 8}))}, "checkpoint-quantization", "model"),
    ({"facts": llama(config=_compressed(output_activations={"num_bits": 8}))}, "checkpoint-quantization", "model"),
    ({"facts": llama(config=_compressed(input_activations={"num_bits": 8}))}, "checkpoint-quantization", "model"),
    (variables(NEURON_LIBTORCH_REMOTE_CACHE="s3://bucket/cache"), "cache-directory", "NEURON_LIBTORCH_REMOTE_CACHE"),
    (
        {**variables(NEURON_LIBTORCH_CACHE_ROOT="/fsx/cache"), "artifact_store": "s3://bucket/store"},
        "cache-directory",
        "NEURON_LIBTORCH_CACHE_ROOT",
    ),
    (keys(tp_degree=8), "unknown-neuron-key", "tp_degree"),
    (args(additional_config={"max_prompt_length": 9}), "unknown-neuron-key", "additional_config.max_prompt_length"),
    ({"vision_neuron_config": {"tp_degree": 2}}, "unknown-neuron-key", "vision_neuron_config.tp_degree"),
    # What the second look found.
    ({"quantization": "awq"}, "not-on-native", "quantization"),
    (args(kv_cache_dtype="fp8_e5m2"), "not-on-native", "kv_cache_dtype"),
    (args(convert="classify"), "not-on-native", "convert"),
    (args(runner="pooling", kv_cache_dtype="fp8"), "not-on-native", "kv_cache_dtype"),
    (args(runner="pooling", async_scheduling=True), "needs-synchronous-scheduling", "async_scheduling"),
    (args(spec_method="ngram", spec_tokens=2), "unknown-speculation", "spec_method"),
    (variables(VLLM_NEURON_BACKEND="natve"), "unknown-backend", "VLLM_NEURON_BACKEND"),
    (variables(VLLM_NEURON_CPU_MODE="true"), "not-a-number", "VLLM_NEURON_CPU_MODE"),
    (variables(VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION="1.5"), "not-a-number", "VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION"),
    (variables(VLLM_NEURON_MIN_KV_BUDGET_GIB="few"), "not-a-number", "VLLM_NEURON_MIN_KV_BUDGET_GIB"),
    (variables(VLLM_NEURON_MIN_KV_BUDGET_GIB="inf"), "not-a-number", "VLLM_NEURON_MIN_KV_BUDGET_GIB"),
    (
        {"facts": llama(config={"compression_config": _compressed(weights={"num_bits": 8})["quantization_config"]})},
        "checkpoint-quantization",
        "model",
    ),
    (
        {
            "facts": llama(architectures=("GptOssForCausalLM",), model_type="gpt_oss", experts=32),
            **keys(ep_degree=3),
            **args(enable_expert_parallel=True),
        },
        "degree",
        "ep_degree",
    ),
    ({"vision_neuron_config": {"tp_size": 3}}, "vision-degrees", "vision_neuron_config.tp_size"),
    ({"vision_neuron_config": {"tp_size": 4, "dp_size": 4}}, "vision-degrees", "vision_neuron_config.tp_size"),
    (
        {"vision_neuron_config": {"num_vision_tokens_buckets": [1024]}},
        "vision-buckets",
        "vision_neuron_config.num_vision_tokens_buckets",
    ),
    (
        {"vision_neuron_config": {"num_vision_tokens_buckets": [4096], "max_vision_seq_len": 4096}},
        "vision-buckets",
        "vision_neuron_config.max_vision_seq_len",
    ),
    (args(mm_encoder_only=True, additional_config={"mm_language_model_only": True}), "vision-role", "mm_encoder_only"),
    (
        {"tensor_parallel_size": 16, **args(decode_context_parallel_size=2, long_prefill_token_threshold=100)},
        "decode-context-parallel",
        "decode_context_parallel_size",
    ),
    (args(compilation_config={"modee": 0}), "rejected-by-vllm", "compilation_config.modee"),
    (args(profiler_config={"profiler": "torch"}), "rejected-by-vllm", "profiler_config.profiler"),
    (args(decode_context_parallel_size=0), "decode-context-parallel", "decode_context_parallel_size"),
    (args(data_parallel_size_local=4), "several-engines", "data_parallel_size_local"),
    (args(mamba_block_size=0), "mamba-block", "mamba_block_size"),
    ({"kv_cache_quant": True, **args(kv_cache_dtype="bfloat16")}, "conflicting-settings", "kv_cache_dtype"),
    ({"kv_cache_quant": False, **args(kv_cache_dtype="fp8")}, "conflicting-settings", "kv_cache_dtype"),
    (
        {"modules_to_not_convert": ("lm_head",), **keys(modules_to_not_convert=["embed_tokens"])},
        "invalid-setting",
        "modules_to_not_convert",
    ),
    (args(device_ids="0,1"), "visible-cores", "device_ids"),
    (args(device_ids="0,1,2,3,4,5,6,7", data_parallel_size=2), "visible-cores", "device_ids"),
    (
        {**args(data_parallel_size=2), **variables(NEURON_VISIBLE_DEVICES="0-7,8-15")},
        "visible-cores",
        "NEURON_VISIBLE_DEVICES",
    ),
    (
        keys(on_device_sampling_config={"sampling_dp_degree": "3"}),
        "degree",
        "on_device_sampling_config.sampling_dp_degree",
    ),
    (args(device_ids="0,x"), "device-ids", "device_ids"),
    (args(device_ids="1,1"), "device-ids", "device_ids"),
    (args(kv_transfer_config={"kv_buffer_device": "cpu"}), "not-on-native", "kv_transfer_config.kv_connector"),
    (
        args(kv_transfer_config={"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}),
        "not-on-native",
        "kv_transfer_config.kv_buffer_device",
    ),
    (args(data_parallel_size_local=-2), "rejected-by-vllm", "data_parallel_size_local"),
    (args(attention_config={"flash_attn_version": "2"}), "rejected-by-vllm", "attention_config.flash_attn_version"),
    (args(compilation_config={"cudagraph_mode": "1"}), "rejected-by-vllm", "compilation_config.cudagraph_mode"),
    (args(reasoning_config={"reasoning_parser": "auto"}), "rejected-by-vllm", "reasoning_config.reasoning_parser"),
    (args(reasoning_config={"reasoning_parser": False}), "rejected-by-vllm", "reasoning_config.reasoning_parser"),
    (args(default_mm_loras={"image": "/lora"}), "adapters-of-media", "default_mm_loras"),
    # Of lengths, buckets and the model.
    (keys(kv_segment_size_buckets=[1000]), "segment-sizes", "kv_segment_size_buckets"),
    ({"max_model_len": 1024, "token_generation_buckets": (512, 1024)}, "decode-lengths", "token_generation_buckets"),
    ({"max_num_seqs": 4, **keys(num_seqs_buckets=[1, 2])}, "largest-bucket", "num_seqs_buckets"),
    ({"quantization": "mxfp4", "instance": TRN2}, "mxfp4", "quantization"),
    ({"context_encoding_buckets": (4096, 2048)}, "bucket-order", "context_encoding_buckets"),
    (
        {**keys(kv_segment_size_buckets=[512]), **args(max_num_batched_tokens=2048)},
        "segment-tokens",
        "max_num_batched_tokens",
    ),
    ({"max_num_seqs": 4096, **args(max_num_batched_tokens=2048)}, "tokens-below-sequences", "max_num_batched_tokens"),
    ({"context_encoding_buckets": (128, 512), "max_model_len": 2048}, "prefill-buckets", "context_encoding_buckets"),
    ({"enable_chunked_prefill": False, "max_model_len": 32768}, "single-shot", "enable_chunked_prefill"),
    (
        {"enable_prefix_caching": True, **args(max_num_batched_tokens=4096)},
        "prefix-caching-single-shot",
        "enable_prefix_caching",
    ),
    ({"structured_outputs": True, "async_mode": True}, "needs-synchronous-scheduling", "async_mode"),
    (args(enable_sleep_mode=True), "not-on-native", "enable_sleep_mode"),
    (keys(ep_degree=4), "degree", "ep_degree"),
    (
        {**args(decode_context_parallel_size=2), "tensor_parallel_size": 8},
        "decode-context-parallel",
        "decode_context_parallel_size",
    ),
    ({"facts": llama(config={"quantization_config": {"quant_method": "awq"}})}, "checkpoint-quantization", "model"),
    ({"tensor_parallel_size": 24}, "indivisible-heads", "tensor_parallel_size"),
]


@pytest.mark.parametrize("line", ["native-0.29", "native-0.24"])
@pytest.mark.parametrize(("settings", "code", "setting"), NATIVE_REJECTS)
def test_the_native_plugin_would_not_start_with_it(
    settings: dict[str, Any], code: str, setting: str, line: str
) -> None:
    result = outcome(line, **{"facts": llama(), "tensor_parallel_size": 8, **settings})
    finding = found(result, code)
    assert (finding.severity, finding.setting, result.plan) == (ERROR, setting, None)
    assert finding.why
    assert finding.fix


def test_a_gpt_oss_checkpoint_starts_as_it_is() -> None:
    facts = llama(
        architectures=("GptOssForCausalLM",),
        model_type="gpt_oss",
        config={"quantization_config": {"quant_method": "mxfp4"}},
    )
    result = outcome("native-0.24", facts=facts)
    assert result.plan is not None
    assert result.plan.engine_args["hf_overrides"] == {"quantization_config": {}}
    additional = result.plan.engine_args["additional_config"]
    assert isinstance(additional, dict)
    assert additional["neuron_config"] == {"on_device_sampling_config": {"all_greedy": False}, "quantization": "bf16"}


def _speculator(method: str, layers: str) -> dict[str, Any]:
    config = {"speculators_model_type": method, "transformer_layer_config": {"model_type": layers}}
    return {"architectures": ("Eagle3Speculator",), "config": config}


@pytest.mark.parametrize(
    ("draft", "lines"),
    [
        ({"architectures": ("LlamaForCausalLM",)}, ("native-0.24", "native-0.29")),
        ({"architectures": ("Eagle3LlamaForCausalLM",)}, ("native-0.24", "native-0.29")),
        ({"architectures": ("Qwen2ForCausalLM",)}, ()),
        ({"architectures": ("PEagleDraftModel",)}, ("native-0.29",)),
        ({"architectures": ("PeagleLlamaForCausalLM",)}, ("native-0.29",)),
        (_speculator("eagle3", "llama"), ("native-0.24", "native-0.29")),
        (_speculator("eagle3", "qwen3"), ()),
        (_speculator("peagle", "llama"), ("native-0.29",)),
    ],
)
def test_the_drafts_of_the_native_plugin(draft: dict[str, Any], lines: tuple[str, ...]) -> None:
    """Drafts of the speculators library are of the architecture of their layers."""
    settings = {**DRAFT, "speculation": "eagle3", "draft_model": llama(**draft), "facts": llama()}
    for line in ("native-0.24", "native-0.29"):
        codes = {finding.code for finding in outcome(line, tensor_parallel_size=8, **settings).findings}
        assert ("draft-architecture" not in codes) is (line in lines)


@pytest.mark.parametrize("line", ["native-0.29", "native-0.24"])
@pytest.mark.parametrize(
    "settings",
    [
        variables(NEURON_VISIBLE_DEVICES="0-3,8-11"),
        {**args(data_parallel_size=2), **variables(NEURON_VISIBLE_DEVICES="0-15")},
        args(device_ids="0,1,2,3,4,5,6,7"),
        args(device_ids=",".join(map(str, range(16))), data_parallel_size=2),
        keys(on_device_sampling_config={"max_top_k": "64", "sampling_dp_degree": "4"}),
        {"facts": llama(config=_compressed("LlamaAttention", input_activations={"num_bits": 8}))},
        {"facts": llama(architectures=("Qwen3VLForConditionalGeneration",)), "quantization": "MXFP8"},
        {"quantization": "bfloat16"},
        {"kv_cache_quant": True, **args(kv_cache_dtype="fp8_e4m3")},
        {"kv_cache_quant": True, **args(kv_cache_dtype="auto")},
        {"kv_cache_quant": False, **args(kv_cache_dtype="bfloat16")},
    ],
)
def test_the_native_plugin_starts_with_it(settings: dict[str, Any], line: str) -> None:
    result = outcome(line, **{"facts": llama(), "tensor_parallel_size": 8, "instance": TRN2, **settings})
    assert not result.errors, result.errors


@pytest.mark.parametrize(("line", "starts"), [("native-0.24", False), ("native-0.29", True)])
def test_qwen3_in_mxfp8_is_of_a_later_line(line: str, starts: bool) -> None:
    facts = llama(architectures=("Qwen3ForCausalLM",), model_type="qwen3")
    result = outcome(line, facts=facts, tensor_parallel_size=8, quantization="mxfp8")
    assert [finding.code for finding in result.errors] == ([] if starts else ["model-quantization"])


SPREAD: dict[str, Any] = {"tensor_parallel_size": 16, "instance": TRN2, "facts": llama(), "disaggregation": "decode"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, None),
        ({"cp_kv_cache_interleave_size": 32}, None),
        ({"cp_kv_cache_interleave_size": 16}, None),  # the plan takes it for the block size
        ({"cp_kv_cache_interleave_size": 16, "block_size": 16}, None),
        ({"dcp_kv_cache_interleave_size": 32}, None),
        ({"dcp_kv_cache_interleave_size": 1}, None),
        ({"cp_kv_cache_interleave_size": 16, "block_size": 32}, "cp_kv_cache_interleave_size"),
        ({"cp_kv_cache_interleave_size": 1}, "cp_kv_cache_interleave_size"),
        ({"dcp_kv_cache_interleave_size": 16, "block_size": 32}, "dcp_kv_cache_interleave_size"),
    ],
)
@pytest.mark.parametrize("line", ["native-0.29", "native-0.24"])
def test_a_transferred_cache_of_several_ranks_is_interleaved_by_blocks(
    line: str, arguments: dict[str, Any], named: str | None
) -> None:
    result = outcome(line, **SPREAD, engine_args={"decode_context_parallel_size": 2, **arguments})
    assert [finding.setting for finding in result.errors] == ([named] if named else [])
    if result.plan is not None:
        args = result.plan.engine_args
        assert args["cp_kv_cache_interleave_size"] == args["block_size"]


CONFLICT = ("conflicting-settings", "invalid-setting")  # the second is the loader's
CONFLICTS: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
    ({"max_num_seqs": 4}, {"batch_size": 8}, {"batch_size", "max_num_seqs"}),
    ({"max_model_len": 128}, {"seq_len": 256}, {"seq_len", "max_model_len"}),
    ({"tensor_parallel_size": 8}, {"tp_degree": 16}, {"tp_degree", "tensor_parallel_size"}),
    ({"enable_bucketing": True}, {"enable_bucketing": False}, {"enable_bucketing"}),
    ({"quantization": "int8", "quantized_checkpoints_path": "/q"}, {"quantized": False}, {"quantized", "quantization"}),
    (
        {"global_topk": 64},
        {"on_device_sampling_config": {"global_topk": 32}},
        {"on_device_sampling_config.global_topk", "global_topk"},
    ),
    ({"on_device_sampling": False}, {"on_device_sampling_config": {"dynamic": True}}, {"on_device_sampling"}),
    (
        {"enable_prefix_caching": True, "max_num_seqs": 4, "block_size": 32},
        {"pa_block_size": 64},
        {"pa_block_size", "block_size"},
    ),
    (
        {"enable_prefix_caching": True, "max_num_seqs": 4, "num_gpu_blocks_override": 999},
        {"pa_num_blocks": 1000},
        {"pa_num_blocks", "num_gpu_blocks_override"},
    ),
    ({"logical_nc_config": 2}, {"logical_nc_config": 1}, {"ENDPOINT_LOGICAL_NC_CONFIG", "logical_nc_config"}),
    ({"enable_prefix_caching": False}, {"is_prefix_caching": True}, {"is_prefix_caching", "enable_prefix_caching"}),
]


@pytest.mark.parametrize(("plain", "raw", "names"), CONFLICTS)
def test_a_plain_setting_and_the_raw_override_may_not_differ(
    plain: dict[str, Any], raw: dict[str, Any], names: set[str]
) -> None:
    result = outcome("nxdi-0.16", neuron_config=raw, **plain)
    said = [f"{one.setting} {one.why}".lower() for one in result.errors if one.code in CONFLICT]
    assert any(all(name.lower() in text for name in names) for text in said), result.errors


@pytest.mark.parametrize(
    ("key", "field"),
    [("batch_size", "max_num_seqs"), ("seq_len", "max_model_len"), ("tp_degree", "tensor_parallel_size")],
)
def test_the_arguments_take_the_text_models_values_and_may_not_differ(key: str, field: str) -> None:
    plan = planned("nxdi-0.16", instance=TRN2, text_neuron_config={key: 8})
    assert plan.engine_args[field] == 8
    other: dict[str, Any] = {field: 16}
    result = outcome("nxdi-0.16", instance=TRN2, text_neuron_config={key: 8}, **other)
    assert found(result, "conflicting-settings").setting == f"text_neuron_config.{key}"


def test_clean_settings_give_no_warning() -> None:
    result = outcome(
        "nxdi-0.16", max_num_seqs=8, max_model_len=4096, tensor_parallel_size=32, facts=llama(), instance=TRN1
    )
    assert [finding for finding in result.findings if finding.severity is not INFO] == []


@pytest.mark.parametrize(
    "text", ["1" * 5000, "0" * 5000, "-" + "9" * 5000, "\u0663", "TRUE", "", "1e999", "NaN", "[" * 5000]
)
def test_a_text_of_any_length_has_a_verdict(text: str) -> None:
    """A number of 5,000 digits is one that Python does not read."""
    for version in ("0.16.0", "0.24.0", "0.29.0"):
        names = ("kv_cache_dtype", "seed", "structured_outputs_config", "profiler_config")
        assert len(list(rejections(version, "neuron", dict.fromkeys(names, text)))) <= len(names)


@pytest.mark.parametrize(
    ("arguments", "rejected"),
    [
        ({"kernel_config": {"enable_flashinfer_autotune": "on"}}, False),
        ({"kernel_config": {"enable_flashinfer_autotune": "maybe"}}, True),
        ({"pooler_config": {"logit_mean": "-0.5"}}, False),
        ({"data_parallel_backend": "mp"}, False),
        ({"config_format": "auto"}, False),
        ({"optimization_level": "2"}, False),
        ({"optimization_level": "fast"}, True),
        ({"show_hidden_metrics_for_version": "0.15.1"}, False),
        ({"show_hidden_metrics_for_version": "auto"}, True),
        ({"mamba_ssu_algorithm": "simple"}, True),
        ({"mamba_ssu_algorithm": "simple", "mamba_backend": "flashinfer"}, False),
        ({"mamba_ssm_cache_dtype": "float16", "enable_mamba_cache_stochastic_rounding": True}, False),
        ({"mamba_ssm_cache_dtype": "float32", "enable_mamba_cache_stochastic_rounding": True}, True),
        ({"spec_tokens": 3}, True),
        ({"spec_tokens": 3, "spec_model": "/opt/draft"}, False),
        ({"offload_backend": "prefetch"}, True),
        ({"offload_backend": "prefetch", "offload_group_size": 4}, False),
        ({"data_parallel_hybrid_lb": True, "data_parallel_size": 4}, True),
        ({"data_parallel_hybrid_lb": True, "data_parallel_size": 4, "data_parallel_size_local": 2}, False),
        ({"attention_config": {"flash_attn_version": 3}}, False),
        ({"compilation_config": {"mode": 3}}, False),
        ({"compilation_config": {"mode": 4}}, True),
        ({"attention_config": {"flash_attn_version": 5}}, True),
        ({"reasoning_parser": "mine"}, True),
        ({"reasoning_parser": "mine", "reasoning_parser_plugin": "/opt/mine.py"}, False),
        ({"reasoning_config": {"reasoning_parser": "qwen3"}}, False),
        ({"speculative_config": {"method": "eagle3", "model": "/d", "quantization": "fp8"}}, False),
        ({"structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True}}, False),
    ],
)
def test_what_vllm_accepts_beside_others_is_not_rejected(arguments: dict[str, Any], rejected: bool) -> None:
    assert bool(list(rejections("0.29.0", "neuron", arguments))) is rejected


@pytest.mark.parametrize(
    ("arguments", "rejected"),
    [
        ({"gpu_memory_utilization": 90.0}, True),
        ({"gpu_memory_utilization": 0.9}, False),
        ({"structured_outputs_config": {"backend": "foo"}}, True),
        ({"structured_outputs_config": {"back_end": "xgrammar"}}, True),
        ({"compilation_config": {"unknown": 1}}, True),
        ({"compilation_config": {"mode": 3}}, False),
        ({"attention_backend": "CPU_ATTN"}, False),
        ({"attention_backend": "word"}, True),
        ({"enable_sleep_mode": True}, True),
        ({"max_num_partial_prefills": 2}, True),
    ],
)
def test_what_vllm_rejects_on_a_cpu(arguments: dict[str, Any], rejected: bool) -> None:
    assert bool(list(rejections("0.16.0", "cpu", arguments))) is rejected


@pytest.mark.parametrize(
    ("arguments", "why", "fix"),
    [
        ({"attention_backend": "cpu_atn"}, "Unknown attention backend: 'cpu_atn'", "Did you mean cpu_attn?"),
        ({"attention_backend": "word"}, "Unknown attention backend: 'word'", "Use FLASH_ATTN, "),
        ({"compilation_config": {"mod": 3}}, "compilation_config has no key mod", "Did you mean mode?"),
    ],
)
def test_a_rejection_quotes_what_was_typed_and_says_what_is_near(arguments: dict[str, Any], why: str, fix: str) -> None:
    finding = found(outcome("cpu", engine_args=arguments), "rejected-by-vllm")
    assert why in finding.why
    assert finding.fix.startswith(fix)


def test_engines_that_need_more_cores_than_there_are_do_not_start() -> None:
    several: dict[str, Any] = {"tensor_parallel_size": 32, "instance": TRN2, "facts": llama()}
    four = outcome("nxdi-0.16", **several, engine_args={"data_parallel_size": 4})
    assert found(four, "too-many-cores").setting == "data_parallel_size"
    two = outcome("nxdi-0.16", **several, engine_args={"data_parallel_size": 2})
    assert "too-many-cores" not in {finding.code for finding in two.findings}


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"data_parallel_size": 8, "nnodes": 4}, None),
        ({"data_parallel_size": 9, "nnodes": 4, "data_parallel_size_local": 1}, "data_parallel_size"),
        ({"data_parallel_size": 8, "data_parallel_size_local": 2}, None),
        ({"data_parallel_size": 8, "data_parallel_size_local": 4}, "data_parallel_size_local"),
        ({"data_parallel_size": 8, "data_parallel_rank": 0}, None),
    ],
)
def test_the_engines_of_several_nodes_have_cores_of_their_own(arguments: dict[str, Any], setting: str | None) -> None:
    """Of 32 cores each, on nodes with 64."""
    addresses = {"data_parallel_address": "10.0.0.4", "master_addr": "10.0.0.4"}
    shape: dict[str, Any] = {"tensor_parallel_size": 32, "instance": TRN2, "facts": llama()}
    result = outcome("native-0.29", **shape, engine_args={**addresses, **arguments})
    assert [one.setting for one in result.errors if one.code == "too-many-cores"] == ([setting] if setting else [])


@pytest.mark.parametrize(("cores", "right"), [("0-31", True), ("0-63", False)])
def test_the_ranks_of_several_nodes_are_divided_among_them(cores: str, right: bool) -> None:
    spread: dict[str, Any] = {"nnodes": 2, "master_addr": "10.0.0.4"}
    shape: dict[str, Any] = {"tensor_parallel_size": 64, "instance": TRN2, "facts": llama()}
    result = outcome("native-0.29", **shape, engine_args=spread, neuron_env={"NEURON_VISIBLE_DEVICES": cores})
    assert ("visible-cores" not in {one.code for one in result.errors}) is right


def test_a_text_model_over_more_cores_than_there_are_does_not_start() -> None:
    text = {"tp_degree": 128}
    result = outcome("nxdi-0.16", tensor_parallel_size=64, instance=TRN2, text_neuron_config=text)
    assert found(result, "too-many-cores").setting == "text_neuron_config.tp_degree"


@pytest.mark.parametrize(
    ("line", "variables", "severity"),
    [
        ("nxdi-0.16", {"NEURON_RT_NUM_CORES": "2"}, ERROR),
        ("nxdi-0.16", {"NEURON_RT_NUM_CORES": "8"}, None),
        ("nxdi-0.16", {"NEURON_RT_NUM_CORES": "0"}, None),  # all
        ("nxdi-0.16", {"NEURON_RT_NUM_CORES": "2", "NEURON_RT_VISIBLE_CORES": "0-7"}, None),
        ("native-0.29", {"NEURON_RT_NUM_CORES": "8"}, WARNING),
    ],
)
def test_a_number_of_cores_is_enough_for_the_degree(
    line: str, variables: dict[str, str], severity: Severity | None
) -> None:
    result = outcome(line, tensor_parallel_size=8, instance=TRN2, facts=llama(), neuron_env=variables)
    assert [one.severity for one in result.findings if one.code == "visible-cores"] == ([severity] if severity else [])


@pytest.mark.parametrize(("size", "warned"), [("1", True), ("2", False)])
def test_the_older_name_of_the_lnc_agrees_with_the_plan(size: str, warned: bool) -> None:
    variables = {"NEURON_RT_VIRTUAL_CORE_SIZE": size}
    result = outcome("nxdi-0.16", tensor_parallel_size=64, instance=TRN2, neuron_env=variables)
    assert ("older-lnc" in {one.code for one in result.findings}) is warned


def test_a_vision_model_over_more_cores_than_there_are_does_not_start() -> None:
    vision = {"tp_degree": 128}
    result = outcome("nxdi-0.16", tensor_parallel_size=64, instance=TRN2, vision_neuron_config=vision)
    assert found(result, "too-many-cores").setting == "vision_neuron_config.tp_degree"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("neuron_config", "batch_size", 0),
        ("neuron_config", "cp_degree", 0),
        ("neuron_config", "context_encoding_buckets", ["128"]),
        ("text_neuron_config", "seq_len", -5),
        ("vision_neuron_config", "seq_len", 0),
        ("vision_neuron_config", "token_generation_buckets", [0]),
    ],
)
def test_lengths_degrees_and_buckets_are_above_0(section: str, key: str, value: Any) -> None:
    settings: dict[str, Any] = {section: {key: value}}
    errors = outcome("nxdi-0.16", **settings, instance=TRN2).errors
    assert {one.code for one in errors} == {"not-positive"}
    assert errors[0].setting == (key if section == "neuron_config" else f"{section}.{key}")


@pytest.mark.parametrize("line", ["cpu", "nxdi-0.16", "native-0.29", "fork-0.9.1", "fork-0.9.1-tnx", "optimum"])
@pytest.mark.parametrize(("seed", "starts"), [(-1, False), (2**32, False), (2**32 - 1, True), (0, True)])
def test_each_worker_seeds_numpy(line: str, seed: int, starts: bool) -> None:
    result = outcome(line, engine_args={"seed": seed})
    assert [one.setting for one in result.errors] == ([] if starts else ["seed"])


def test_a_degree_of_decode_context_parallelism_divides_the_ranks() -> None:
    odd = {"decode_context_parallel_size": 3}
    result = outcome("nxdi-0.16", tensor_parallel_size=32, engine_args=odd, facts=llama())
    assert found(result, "decode-context-parallel").severity is ERROR


@pytest.mark.parametrize(("line", "starts"), [("native-0.24", True), ("native-0.29", False)])
def test_vllm_may_not_check_the_names_of_variables(line: str, starts: bool) -> None:
    result = outcome(line, facts=llama(), tensor_parallel_size=8, engine_args={"fail_on_environ_validation": True})
    assert (result.plan is not None) is starts


@pytest.mark.parametrize(
    ("line", "settings", "setting", "severity"),
    [
        ("nxdi-0.16", {"BASE_COMPILE_WORK_DIR": "/opt/ml/model/work"}, "BASE_COMPILE_WORK_DIR", ERROR),
        ("nxdi-0.16", {"NEURON_COMPILE_CACHE_URL": "/opt/ml/model/cache"}, "NEURON_COMPILE_CACHE_URL", ERROR),
        ("native-0.29", {"NEURON_LIBTORCH_CACHE_ROOT": "/models/a/b", "ENDPOINT_MODEL": "/models/a"}, None, ERROR),
        ("native-0.24", {"ENDPOINT_SCRATCH": "/opt/ml/model/../model/x"}, "ENDPOINT_SCRATCH", ERROR),
        ("nxdi-0.16", {"NEURON_COMPILED_ARTIFACTS": "/opt/ml/model/neff"}, "NEURON_COMPILED_ARTIFACTS", WARNING),
        ("nxdi-0.16", {"NEURON_COMPILED_ARTIFACTS": "/opt/ml/modelled"}, None, None),
        ("nxdi-0.16", {"BASE_COMPILE_WORK_DIR": "/tmp/work"}, None, None),
    ],
)
def test_nothing_is_written_below_the_model(
    line: str, settings: dict[str, str], setting: str | None, severity: Severity | None
) -> None:
    """`check` knows that SageMaker mounts the model's directory read-only."""
    environment = {"ENDPOINT_LINE": line, "ENDPOINT_INSTANCE": "ml.trn2.48xlarge", **settings}
    config = load(environment)
    findings = [each for each in make_plan(config, llama(), TRN2).findings if each.code == "read-only-place"]
    assert [each.severity for each in findings] == ([severity] if severity else [])
    assert setting is None or findings[0].setting == setting
    assert all(("read-only" in each.why and "/tmp" in each.fix) or severity is WARNING for each in findings)


@pytest.mark.parametrize(("line", "starts"), [("native-0.24", False), ("native-0.29", True)])
def test_reasoning_needs_both_marks_or_a_parser(line: str, starts: bool) -> None:
    for reasoning, right in (
        ({"reasoning_end_str": "</think>"}, starts),
        ({}, starts),
        ({"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}, True),
        ({"reasoning_parser": "qwen3"}, True),
    ):
        result = outcome(line, facts=llama(), tensor_parallel_size=8, engine_args={"reasoning_config": reasoning})
        assert ("reasoning-marks" not in {finding.code for finding in result.findings}) is right


@pytest.mark.parametrize(
    ("line", "arguments", "starts"),
    [
        ("nxdi-0.16", {"swap_space": 179, "enable_prefix_caching": False}, True),
        ("nxdi-0.16", {"swap_space": 180, "enable_prefix_caching": False}, False),
        ("nxdi-0.16", {"decode_context_parallel_size": 0}, False),
        ("nxdi-0.16", {"ec_transfer_config": {"ec_connector": "ECExampleConnector"}}, False),
        ("nxdi-0.16", {"eplb_config": {"num_redundant_experts": 2}}, False),
        ("nxdi-0.16", {"eplb_config": {"num_redundant_experts": 0}}, True),
        ("nxdi-0.16", {"structured_outputs_config": {"disable_additional_properties": True}}, False),
        ("nxdi-0.16", {"structured_outputs_config": {"disable_any_whitespace": True, "backend": "xgrammar"}}, True),
        ("nxdi-0.16", {"profiler_config": {"torch_profiler_dir": "/tmp"}}, False),
        ("nxdi-0.16", {"profiler_config": {"torch_profiler_dir": "/tmp", "profiler": "cuda"}}, False),
        ("nxdi-0.16", {"profiler_config": {"torch_profiler_dir": "/tmp", "profiler": "torch"}}, True),
        ("nxdi-0.16", {"mamba_block_size": 4096, "enable_prefix_caching": False}, True),
        ("nxdi-0.16", {"mamba_block_size": 2048, "enable_prefix_caching": False}, False),
        ("nxdi-0.16", {"compilation_config": {"cudagraph_mode": "none"}}, True),
        ("native-0.29", {"model_class_overrides": {"LlamaForCausalLM": "module"}}, False),
        ("native-0.29", {"model_class_overrides": {"LlamaForCausalLM": "module:Class"}}, True),
        ("native-0.29", {"long_prefill_token_threshold": 8192}, False),
        ("native-0.24", {"long_prefill_token_threshold": 8192}, True),
        ("native-0.29", {"kv_transfer_config": {"kv_load_failure_policy": "stop"}}, False),
        ("native-0.29", {"enable_return_routed_experts": True, "prefill_context_parallel_size": 2}, False),
        ("native-0.24", {"max_logprobs": -2}, True),
        ("native-0.29", {"max_logprobs": -1}, True),
        ("native-0.29", {"max_logprobs": -2}, False),
        ("native-0.29", {"prefill_context_parallel_size": 2}, False),
        ("native-0.29", {"per_request_spec_decode_metrics": "summary"}, False),
        ("nxdi-0.16", {"async_scheduling": True, "mamba_cache_mode": "align"}, False),
        ("nxdi-0.16", {"async_scheduling": True, "distributed_executor_backend": "own.Executor"}, False),
        ("nxdi-0.16", {"async_scheduling": True, "distributed_executor_backend": "mp"}, True),
        ("native-0.24", {"kv_transfer_config": {"kv_role": "kv_both"}}, False),
        ("native-0.24", {"kv_sharing_fast_prefill": True}, True),
        (
            "native-0.24",
            {
                "kv_sharing_fast_prefill": True,
                "speculative_config": {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3},
            },
            False,
        ),
        (
            "native-0.29",
            {
                "per_request_spec_decode_metrics": "summary",
                "speculative_config": {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3},
            },
            True,
        ),
    ],
)
def test_arguments_of_one_version(line: str, arguments: dict[str, Any], starts: bool) -> None:
    result = outcome(line, facts=llama(), tensor_parallel_size=8, instance=TRN2, engine_args=arguments)
    assert (not result.errors) is starts, result.errors


@pytest.mark.parametrize(("more", "starts"), [({}, False), ({"num_speculative_tokens": 3}, True)])
def test_speculation_by_the_prompts_own_text_needs_a_number_of_tokens(more: dict[str, Any], starts: bool) -> None:
    speculation = {"speculative_config": {"method": "ngram", **more}}
    result = outcome("cpu", facts=llama(), installed={"vllm": "0.29.0"}, engine_args=speculation)
    assert (not result.errors) is starts, result.errors


@pytest.mark.parametrize(("arguments", "starts"), [({}, False), ({"max_num_batched_tokens": 4096}, True)])
def test_as_many_tokens_in_a_step_as_sequences(arguments: dict[str, Any], starts: bool) -> None:
    result = outcome(
        "nxdi-0.16",
        facts=llama(),
        tensor_parallel_size=8,
        instance=TRN2,
        max_num_seqs=4096,
        max_model_len=1024,
        engine_args=arguments,
    )
    assert ("tokens-below-sequences" not in {finding.code for finding in result.errors}) is starts


@pytest.mark.parametrize(
    "line", ["native-0.29", "native-0.24", "native-0.21", "nxdi-0.16", "optimum", "fork-0.9.1-tnx"]
)
def test_a_model_of_one_line_is_planned_there_and_names_it_elsewhere(line: str) -> None:
    facts = llama(architectures=("Qwen3ASRForConditionalGeneration",), model_type="qwen3_asr")
    result = outcome(line, facts=facts, tensor_parallel_size=8, instance=TRN2)
    if line == "native-0.29":
        assert not result.errors, result.errors
    else:
        assert "native-0.29" in found(result, "unsupported-model").fix


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"tensor_parallel_size": 24}, "indivisible-heads"),
        ({"max_num_seqs": 4096}, "tokens-below-sequences"),
        ({"max_num_seqs": 4096, "tensor_parallel_size": 2}, None),
        ({"max_num_seqs": 4096, "engine_args": {"max_num_batched_tokens": 4096}}, None),
        ({"engine_args": {"max_num_batched_tokens": 64, "enable_chunked_prefill": False}}, "tokens-below-length"),
        ({"engine_args": {"enable_chunked_prefill": False}}, None),
        ({"engine_args": {"distributed_executor_backend": "word"}}, "unknown-executor"),
        ({"engine_args": {"distributed_executor_backend": "module.Class"}}, None),
        ({"engine_args": {"enable_expert_parallel": True}}, "rejected-by-vllm"),
        ({"engine_args": {"enable_eplb": True}}, "rejected-by-vllm"),
    ],
)
def test_a_start_on_a_cpu(arguments: dict[str, Any], code: str | None) -> None:
    result = outcome("cpu", facts=llama(), installed={"vllm": "0.16.0"}, **arguments)
    assert {finding.code for finding in result.errors} == ({code} if code else set())


@pytest.mark.parametrize("version", ["0.16.0", "0.24.0", "0.29.0", "0.32.0"])
@pytest.mark.parametrize(
    ("name", "arguments", "severity"),
    [
        ("XLMRobertaModel", {"max_num_batched_tokens": 512}, WARNING),
        ("XLMRobertaModel", {"max_num_batched_tokens": 512, "max_model_len": 1024}, ERROR),
        ("BertForSequenceClassification", {"max_num_batched_tokens": 512, "max_model_len": 1024}, ERROR),
        ("XLMRobertaModel", {"max_num_batched_tokens": 512, "max_model_len": 512}, None),
        ("XLMRobertaModel", {"max_num_batched_tokens": 512, "enable_chunked_prefill": True}, None),
        ("XLMRobertaModel", {}, None),
        ("LlamaForCausalLM", {"max_num_batched_tokens": 512}, None),
    ],
)
def test_a_step_of_an_encoder_holds_a_whole_prompt(
    version: str, name: str, arguments: dict[str, Any], severity: Severity | None
) -> None:
    facts = llama(architectures=(name,), model_type="xlm-roberta", max_position_embeddings=8194)
    result = outcome("cpu", facts=facts, installed={"vllm": version}, max_num_seqs=4, engine_args=arguments)
    severities = [finding.severity for finding in result.findings if finding.code == "tokens-below-length"]
    assert severities == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("version", "config", "variables", "starts"),
    [
        *[(version, {"kv_lora_rank": 512}, {}, False) for version in ("0.16.0", "0.24.0")],
        *[(version, {"kv_lora_rank": 512}, {}, True) for version in ("0.29.0", "0.32.0")],
        ("0.16.0", {"kv_lora_rank": 512}, {"VLLM_MLA_DISABLE": "1"}, True),
        ("0.16.0", {"kv_lora_rank": None}, {}, True),
        ("0.16.0", {"kv_lora_rank": 512, "model_type": "minicpm3"}, {}, True),
    ],
)
def test_latent_attention_needs_a_vllm_that_has_it_on_a_cpu(
    version: str, config: dict[str, Any], variables: dict[str, str], starts: bool
) -> None:
    config = {"model_type": "deepseek_v2", **config}
    facts = llama(architectures=("DeepseekV2ForCausalLM",), model_type="deepseek_v2", config=config)
    result = outcome("cpu", facts=facts, installed={"vllm": version}, neuron_env=variables)
    assert [finding.code for finding in result.errors] == ["unsupported-model"] * (not starts)


@pytest.mark.parametrize(
    ("line", "version", "size", "starts"),
    [
        *[("cpu", version, size, False) for version in ("0.16.0", "0.29.0") for size in (16, 40, 48)],
        *[("cpu", version, size, True) for version in ("0.16.0", "0.29.0") for size in (32, 80, 256)],
        ("cpu", "0.16.0", 512, False),
        ("cpu", "0.24.0", 512, True),
        ("cpu", "0.11.0", 48, True),
        ("nxdi-0.16", "0.16.0", 48, True),
    ],
)
def test_the_sizes_of_heads_that_a_cpu_computes(line: str, version: str, size: int, starts: bool) -> None:
    result = outcome(line, facts=llama(head_dim=size), installed={"vllm": version}, max_model_len=512)
    assert ("unsupported-model" not in {finding.code for finding in result.errors}) is starts


@pytest.mark.parametrize(
    ("kind", "fix"),
    [("mixtral", "Set ENDPOINT_LINE to nxdi-0.16"), ("deepseek_v3", "another model"), ("mllama", "another")],
)
def test_a_model_that_the_native_plugin_has_not_is_sent_to_a_line_that_has_it(kind: str, fix: str) -> None:
    result = outcome("native-0.24", facts=llama(architectures=("OtherForCausalLM",), model_type=kind))
    assert fix in found(result, "unsupported-model").fix
