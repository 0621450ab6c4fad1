"""What NxDI 0.10 and plugin 0.5.0 refuse, typed as a user types it: `check` finds it and names the setting.

The place in their sources is in the docstring of each rule (handler/neuron).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.lines.lora import adapter_document
from handler.neuron.planning.examination import Examination
from model_packaging.examination_report import examine

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
SCOUT = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": LLAMA}
EXPERTS = {
    **LLAMA,
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
ADDITIONAL = "SM_VLLM_ADDITIONAL_CONFIG"
OVERRIDE = f"{ADDITIONAL}.override_neuron_config"
PREFIX = {"SM_VLLM_ENABLE_PREFIX_CACHING": "true", "SM_VLLM_MAX_NUM_SEQS": "4"}
DRAFT = {"ENDPOINT_NUM_SPECULATIVE_TOKENS": "4", "ENDPOINT_SPECULATION": "draft_model"}
FP8: dict[str, Any] = {
    "quantized": True,
    "quantized_checkpoints_path": "/q",
    "quantization_type": "per_channel_symmetric",
}
# Variables, the code of the error, and the setting that it names: a key of the NeuronConfig, or a variable.
Case = tuple[dict[str, str], str, str]


def raw(additional: dict[str, Any] | None = None, **keys: Any) -> dict[str, str]:
    """The variable with a NeuronConfig."""
    return {ADDITIONAL: json.dumps({"override_neuron_config": keys, **(additional or {})})}


def checked(directory: Path, environ: dict[str, str], model: dict[str, Any] | None = None) -> Examination:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(model or LLAMA))
    named = {"ENDPOINT_INSTANCE": "ml.trn2.48xlarge", "SM_VLLM_TENSOR_PARALLEL_SIZE": "32", **environ}
    return examine(named, str(directory), instance=None, line="nxdi-0.16", fetch=lambda location: None)


def errors(found: Examination) -> set[tuple[str, str]]:
    return {(one.code, one.setting) for one in found.findings if one.severity.value == "error"}


def named(code: str, setting: str) -> tuple[str, str]:
    return code, setting if setting[0].isupper() else f"{OVERRIDE}.{setting}"


REFUSED: dict[str, Case] = {
    "context buckets with prefix caching": (
        {**PREFIX, **raw(context_encoding_buckets=[512, 1024])},
        "prefix-buckets",
        "context_encoding_buckets",
    ),
    "prefix caching without blocks": (
        {**PREFIX, **raw(is_block_kv_layout=False)},
        "blocks-of-prefix-caching",
        "is_block_kv_layout",
    ),
    "blocks alone": (raw(is_block_kv_layout=True), "blocks-alone", "is_block_kv_layout"),
    "sequence parallel, a length that the degree does not divide": (
        {"ENDPOINT_SEQUENCE_PARALLEL_ENABLED": "true", "SM_VLLM_MAX_MODEL_LEN": "1000"},
        "sequence-parallel-lengths",
        "ENDPOINT_SEQUENCE_PARALLEL_ENABLED",
    ),
    "sequence parallel, a bucket that the degree does not divide": (
        raw(sequence_parallel_enabled=True, context_encoding_buckets=[100, 4096]),
        "sequence-parallel-lengths",
        "sequence_parallel_enabled",
    ),
    "QKV kernel without fused weights": (
        {"ENDPOINT_QKV_KERNEL_ENABLED": "true"},
        "qkv-kernel-weights",
        "ENDPOINT_QKV_KERNEL_ENABLED",
    ),
    "flash decoding, KV heads": (
        {"SM_VLLM_TENSOR_PARALLEL_SIZE": "4", **raw(flash_decoding_enabled=True)},
        "flash-decoding-heads",
        "flash_decoding_enabled",
    ),
    "attention data parallel, KV heads": (
        {"SM_VLLM_MAX_NUM_SEQS": "8", **raw(attention_dp_degree=8)},
        "attention-dp-heads",
        "attention_dp_degree",
    ),
    "context parallel below the KV heads": (
        {"SM_VLLM_TENSOR_PARALLEL_SIZE": "4", **raw(cp_degree=2)},
        "context-parallel-heads",
        "cp_degree",
    ),
    "context parallel, prefill ranks that the KV heads do not divide over": (
        {"SM_VLLM_TENSOR_PARALLEL_SIZE": "24", **raw(cp_degree=4)},
        "context-parallel-heads",
        "cp_degree",
    ),
    "a data type of quantized weights": (
        raw(**FP8, quantization_dtype="fp8"),
        "quantization-dtype",
        "quantization_dtype",
    ),
    "a type of quantization": (
        raw(**{**FP8, "quantization_type": "per_row"}, quantization_dtype="int8"),
        "quantization-type",
        "quantization_type",
    ),
    "KV quantization that JSON cannot spell": (
        raw(kv_quant_config={"k_quant_method": "per_key_symmetric"}),
        "kv-quant-config",
        "kv_quant_config",
    ),
    "an option that is not one": (raw(ep_dispatch_cc_option="AR"), "named-options", "ep_dispatch_cc_option"),
    "a fused residual with sequence parallel": (
        raw(sequence_parallel_enabled=True, mlp_kernel_enabled=True, mlp_kernel_fuse_residual_add=True),
        "fused-residual",
        "mlp_kernel_fuse_residual_add",
    ),
    "tensor capture on the CPU": (
        raw(tensor_capture_config={"modules_to_capture": ["lm_head"]}, on_device_sampling_config=None),
        "tensor-capture",
        "tensor_capture_config",
    ),
    "tensor replacement without its paths": (
        raw(tensor_replacement_config={"ref_dir": "/ref"}),
        "tensor-replacement",
        "tensor_replacement_config",
    ),
    "fused speculation without a draft": (
        raw(enable_fused_speculation=True, speculation_length=4),
        "speculation-without-draft",
        "enable_fused_speculation",
    ),
    "EAGLE without a draft": (
        raw(enable_eagle_speculation=True, speculation_length=4),
        "speculation-without-draft",
        "enable_eagle_speculation",
    ),
    "a block size that vLLM does not take": (
        {**PREFIX, "SM_VLLM_BLOCK_SIZE": "48"},
        "value-of-another-version",
        "SM_VLLM_BLOCK_SIZE",
    ),
    "a LoRA rank that vLLM does not take": (
        {"ENDPOINT_LORA_MODULES": '{"sql": "/adapters/sql"}', "SM_VLLM_MAX_LORA_RANK": "12"},
        "value-of-another-version",
        "SM_VLLM_MAX_LORA_RANK",
    ),
    "a data type of the KV cache": ({"SM_VLLM_KV_CACHE_DTYPE": "fp8"}, "kv-cache-dtype", "SM_VLLM_KV_CACHE_DTYPE"),
    "an unknown key of additional_config": (raw({"flavour": "vanilla"}), "unknown-neuron-key", f"{ADDITIONAL}.flavour"),
    "a world size above the cores": (raw(world_size=128), "too-many-cores", "world_size"),
    "more ranks than cores": (raw(pp_degree=4), "too-many-cores", "pp_degree"),
    "more adapters than the host keeps": (
        {
            "ENDPOINT_LORA_MODULES": '{"a": "/adapters/a", "b": "/adapters/b", "c": "/adapters/c"}',
            "SM_VLLM_MAX_LORAS": "1",
            "SM_VLLM_MAX_CPU_LORAS": "2",
        },
        "too-few-loras",
        "SM_VLLM_MAX_CPU_LORAS",
    ),
}


# Of a model with experts only.
REFUSED_OF_EXPERTS: dict[str, Case] = {
    "an unknown key of the router": (raw(router_config={"act": "sigmoid"}), "router-config", "router_config"),
    "a data type of the router": (raw(router_config={"dtype": "fp32"}), "router-config", "router_config"),
    "an activation of the router": (raw(router_config={"act_fn": "relu"}), "router-config", "router_config"),
    "a strategy of blocks": (
        raw(blockwise_matmul_config={"block_sharding_strategy": "BLOCKS"}),
        "block-sharding-strategy",
        "blockwise_matmul_config",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_software_refuses_is_an_error_with_the_setting(name: str, tmp_path: Path) -> None:
    environ, *expected = REFUSED[name]
    assert named(*expected) in errors(checked(tmp_path / "model", environ))


@pytest.mark.parametrize("name", REFUSED_OF_EXPERTS)
def test_what_is_refused_of_a_model_with_experts_only(name: str, tmp_path: Path) -> None:
    environ, *expected = REFUSED_OF_EXPERTS[name]
    assert named(*expected) in errors(checked(tmp_path / "model", environ, EXPERTS))
    assert errors(checked(tmp_path / "dense", environ)) == set()


@pytest.mark.parametrize("key", ["is_prefix_caching", "is_block_kv_layout", "is_medusa"])
def test_llama_4_does_not_take(key: str, tmp_path: Path) -> None:
    environ = {**PREFIX} if key != "is_medusa" else raw(text_neuron_config={"is_medusa": True})
    assert any(code == "model-with-images" for code, _ in errors(checked(tmp_path / "model", environ, SCOUT)))


TAKEN: dict[str, dict[str, str]] = {
    "keys of single models": raw(sliding_window_attention_dp_degree=1, router_act_fn="sigmoid"),
    "overrides of the draft": raw(draft_overrides={"mlp_kernel_enabled": True}),
    "a page size as text": raw(scratchpad_page_size="1024"),
    "adapters beside a draft": {
        **DRAFT,
        "ENDPOINT_SPECULATIVE_MODEL": "org/draft",
        "ENDPOINT_LORA_MODULES": '{"sql": "/adapters/sql"}',
        "ENDPOINT_LORA_TARGET_MODULES": "q_proj",
    },
    "adapters that wait on the host": {
        "ENDPOINT_LORA_MODULES": '{"a": "/adapters/a", "b": "/adapters/b"}',
        "ENDPOINT_LORA_TARGET_MODULES": "q_proj",
        "SM_VLLM_MAX_LORAS": "1",
        "SM_VLLM_MAX_CPU_LORAS": "2",
    },
    "a KV cache in FP8": {"ENDPOINT_KV_CACHE_QUANT": "true"},
    "the older name of the LNC": raw(logical_neuron_cores=2),
    "attention data parallel with as many KV heads": {"SM_VLLM_MAX_NUM_SEQS": "8", **raw(attention_dp_degree=4)},
    "sequence parallel with even lengths": {"ENDPOINT_SEQUENCE_PARALLEL_ENABLED": "true"},
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_software_takes_is_no_error(name: str, tmp_path: Path) -> None:
    assert errors(checked(tmp_path / "model", TAKEN[name])) == set()


@pytest.mark.parametrize(
    ("model", "keys", "code"),
    [
        ({"attention_chunk_size": 1024}, {"cp_degree": 32, "seq_len": 4112}, "chunked-attention-parallel"),
        ({"sliding_window": 4096}, {"windowed_context_encoding_size": 2048}, "windowed-context"),
        ({"model_type": "mixtral", "hidden_size": 4112}, {}, "mixtral-width"),
        ({}, {"draft_overrides": {"torch_dtype": "float16"}}, "draft-dtype"),
    ],
)
def test_what_a_models_attention_refuses(
    model: dict[str, int], keys: dict[str, Any], code: str, tmp_path: Path
) -> None:
    found = errors(checked(tmp_path / "model", raw(**keys), {**LLAMA, **model}))
    assert code in {one for one, _ in found}


def test_a_deprecated_key_that_is_still_read_counts(tmp_path: Path) -> None:
    found = checked(tmp_path / "model", raw(logical_neuron_cores=4))
    assert any(code == "lnc" for code, _ in errors(found))
    (deprecated,) = (one for one in found.findings if one.code == "deprecated-neuron-key")
    assert "still reads it" in deprecated.why


def test_the_vision_models_configuration_is_checked_too(tmp_path: Path) -> None:
    vision = {"seq_len": 2048, "max_context_length": 4096, "attention_dp_degree": 3}
    found = errors(checked(tmp_path / "model", raw(text_neuron_config={}, vision_neuron_config=vision), SCOUT))
    where = f"{OVERRIDE}.vision_neuron_config"
    assert ("context-longer-than-length", f"{where}.max_context_length") in found
    assert ("tp-by-dp", f"{where}.attention_dp_degree") in found


def test_a_short_vision_model_does_not_inherit_a_longer_context(tmp_path: Path) -> None:
    environ = {"SM_VLLM_MAX_MODEL_LEN": "16384", **raw(text_neuron_config={}, vision_neuron_config={"seq_len": 8192})}
    found = checked(tmp_path / "model", environ, SCOUT)
    assert found.plan is not None, errors(found)
    override: Any = found.plan.engine_args["additional_config"]
    assert override["override_neuron_config"]["vision_neuron_config"]["max_context_length"] == 8192


def test_fp8_in_the_kv_cache_is_what_the_class_reads(tmp_path: Path) -> None:
    found = checked(tmp_path / "model", TAKEN["a KV cache in FP8"])
    assert found.plan is not None
    override: Any = found.plan.engine_args["additional_config"]
    assert override["override_neuron_config"]["kv_quant_config"] == {"direct_cast": True}
    unread = checked(tmp_path / "model", raw(kv_cache_quant=True))
    assert ("kv-cache-quant", f"{OVERRIDE}.kv_cache_quant") in {(one.code, one.setting) for one in unread.findings}


def test_asynchronous_scheduling_is_off_unless_it_was_asked_for(tmp_path: Path) -> None:
    plan = checked(tmp_path / "model", {}).plan
    assert plan is not None
    assert plan.engine_args["async_scheduling"] is False
    chosen = checked(tmp_path / "model", {"SM_VLLM_ASYNC_SCHEDULING": "true"})
    assert ("async-scheduling", "SM_VLLM_ASYNC_SCHEDULING") in {(one.code, one.setting) for one in chosen.findings}


def test_chunked_prefill_is_refused_for_what_really_happens(tmp_path: Path) -> None:
    found = checked(tmp_path / "model", {"SM_VLLM_ENABLE_CHUNKED_PREFILL": "true"})
    (refused,) = (one for one in found.findings if one.code == "unsupported-by-line")
    assert "silently switches it off" in refused.why


def test_check_knows_the_limits_of_a_sagemaker_models_environment(tmp_path: Path) -> None:
    long = raw(target="x" * 1100)
    assert ("invalid-setting", ADDITIONAL) in errors(checked(tmp_path / "model", long))
    many = {f"NEURON_UNKNOWN_{number}": "1" for number in range(101)}
    assert ("invalid-setting", "--env-file") in errors(checked(tmp_path / "model", many))
    elsewhere = {**many, **long, "ENDPOINT_INSTANCE": "trn2.48xlarge"}
    assert {code for code, _ in errors(checked(tmp_path / "model", elsewhere))} <= {"unknown-neuron-key"}


def test_a_draft_is_there_and_has_the_models_vocabulary(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    environ = {**DRAFT, "ENDPOINT_SPECULATIVE_MODEL": str(draft), "ENDPOINT_INSTANCE": ""}
    assert ("invalid-setting", "ENDPOINT_SPECULATIVE_MODEL") in errors(checked(tmp_path / "model", environ))
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 32000}))
    assert ("draft-vocabulary", "ENDPOINT_SPECULATIVE_MODEL") in errors(checked(tmp_path / "model", environ))
    (draft / "config.json").write_text(json.dumps(LLAMA))
    assert errors(checked(tmp_path / "model", environ)) == set()


@pytest.fixture
def listing(tmp_path: Path) -> dict[str, Any]:
    """A file that names two adapters, as NxD Inference takes it."""
    for name in ("a", "b"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
    both = {"a": "a", "b": "b"}
    return {"lora-ckpt-dir": str(tmp_path / "adapters"), "lora-ckpt-paths": both, "lora-ckpt-paths-cpu": both}


def listed(directory: Path, listing: dict[str, Any] | None, **environ: str) -> list[str]:
    """What `check` says of a raw lora_ckpt_json."""
    path = directory / "adapters.json"
    if listing is not None:
        path.write_text(json.dumps(listing))
    lora = {"SM_VLLM_ENABLE_LORA": "true", "ENDPOINT_INSTANCE": "", "ENDPOINT_LORA_TARGET_MODULES": "q_proj", **environ}
    found = checked(directory / "model", {**raw(lora_ckpt_json=str(path)), **lora})
    return [
        one.why
        for one in found.findings
        if (one.setting, one.severity.value) == (f"{OVERRIDE}.lora_ckpt_json", "error")
    ]


def test_a_raw_list_of_adapters_is_checked(tmp_path: Path, listing: dict[str, Any]) -> None:
    enough = {"SM_VLLM_MAX_LORAS": "2"}
    (missing,) = listed(tmp_path, None, **enough)
    assert "there is no" in missing
    assert listed(tmp_path, listing, **enough) == []
    (too_many,) = listed(tmp_path, listing)
    assert "2 adapters, and the host keeps 1" in too_many
    (no_host_list,) = listed(tmp_path, {name: one for name, one in listing.items() if "cpu" not in name}, **enough)
    assert "lora-ckpt-paths-cpu" in no_host_list
    (tmp_path / "adapters" / "b" / "adapter_config.json").unlink()
    (bare,) = listed(tmp_path, listing, **enough)
    assert "has no adapter_config.json" in bare


def test_the_list_that_a_start_writes_has_the_hosts_adapters(tmp_path: Path) -> None:
    config = EndpointConfig(lora_modules={"a": "/a", "b": "/b"}, max_loras=1)
    document = adapter_document(config)
    assert document["lora-ckpt-paths"] == {"a": "/a"}
    assert document["lora-ckpt-paths-cpu"] == {"a": "/a", "b": "/b"}


def test_more_ways_than_ranks_are_an_error_too(tmp_path: Path) -> None:
    ways = {"SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "SM_VLLM_MAX_NUM_SEQS": "8"}
    found = errors(checked(tmp_path / "model", {**ways, **raw(attention_dp_degree=4, cp_degree=2)}))
    assert "tp-by-dp" in {code for code, _ in found}
