"""How each line spells the same settings."""

from __future__ import annotations

from typing import Any

import pytest

from handler.json_value import mapping
from tests.handler.neuron.neuron_plans import CHOSEN, GRAMMARS, TRN1, TRN2, found, llama, outcome, planned

SHAPE: dict[str, Any] = {
    "model": "/models/llama",
    "max_num_seqs": 8,
    "max_model_len": 4096,
    "tensor_parallel_size": 32,
}
OFF = {"enable_prefix_caching": False}
CACHED = {"enable_prefix_caching": True, "block_size": 32, "num_gpu_blocks_override": 4096}
BLOCKS = {"is_prefix_caching": True, "is_block_kv_layout": True, "pa_num_blocks": 4096, "pa_block_size": 32}
OPTIONS = {"async_mode": False, "skip_warmup": True, "save_sharded_checkpoint": True}
PER_REQUEST = {"dynamic": True, "deterministic": False}
NXD = {"VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference"}
FP8_ENV = {"XLA_HANDLE_SPECIAL_SCALAR": "1", "UNSAFE_FP8FNCAST": "1"}
EAGLE = {"speculation": "eagle", "speculative_model": "/models/eagle", "num_speculative_tokens": 5}
DRAFT = {"speculative_model": "/models/draft", "num_speculative_tokens": 4}
ON_DEVICE: dict[str, Any] = {"on_device_sampling_config": {"all_greedy": False}}
SEGMENTED: dict[str, Any] = {
    "max_num_batched_tokens": 2048,
    "enable_prefix_caching": True,
    "distributed_executor_backend": "mp",
    "async_scheduling": True,
}
WHOLE: dict[str, Any] = {"max_num_batched_tokens": 4096, "enable_prefix_caching": False}


def nxdi(**override: Any) -> dict[str, Any]:
    return {**SHAPE, **OFF, **CHOSEN, "additional_config": {"override_neuron_config": override}}


def fork(override: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    given = {} if override is None else {"override_neuron_config": override}
    return {**SHAPE, "block_size": 4096, "device": "neuron", **given, **args}


def native(keys: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    """The arguments of the native plugin: what every plan says, and more."""
    additional = {"neuron_config": {**ON_DEVICE, **(keys or {})}}
    return {**SHAPE, **GRAMMARS, **SEGMENTED, "additional_config": additional, **args}


Spelled = tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]


def spelled(line: str, settings: dict[str, Any], args: dict[str, Any], **env: str) -> Spelled:
    """On this line, these settings become these engine arguments and variables. The fork's lines have `NXD` as well."""
    return line, settings, args, {**(NXD if line.startswith("fork") else {}), **env}


# With it, version 0.29 keeps its traces.
ROUTE = {"VLLM_NEURON_BACKEND": "neuron_native"}
SPELLINGS: dict[str, Spelled] = {
    "nxdi int8": spelled(
        "nxdi-0.16",
        {"quantization": "int8", "quantized_checkpoints_path": "/q", "modules_to_not_convert": ("lm_head",)},
        nxdi(
            quantized_checkpoints_path="/q",
            modules_to_not_convert=["lm_head"],
            quantized=True,
            quantization_dtype="int8",
            quantization_type="per_tensor_symmetric",
        ),
    ),
    "nxdi fp8": spelled(
        "nxdi-0.16",
        {"quantization": "fp8", "quantized_checkpoints_path": "/q", "kv_cache_quant": True},
        nxdi(
            quantized_checkpoints_path="/q",
            kv_cache_quant=True,
            kv_quant_config={"direct_cast": True},
            quantized=True,
            quantization_dtype="f8e4m3",
            quantization_type="per_channel_symmetric",
        ),
        **FP8_ENV,
    ),
    "nxdi global top_k": spelled(
        "nxdi-0.16", {"global_topk": 64}, nxdi(on_device_sampling_config={**PER_REQUEST, "global_topk": 64})
    ),
    "nxdi CPU sampling": spelled("nxdi-0.16", {"on_device_sampling": False}, nxdi(on_device_sampling_config=None)),
    "nxdi CPU sampling by the variable": spelled(
        "nxdi-0.16", {"neuron_env": {"NEURON_ON_DEVICE_SAMPLING_DISABLED": "1"}}, nxdi(on_device_sampling_config=None)
    ),
    "nxdi prefix caching": spelled(
        "nxdi-0.16",
        {"enable_prefix_caching": True},
        {**SHAPE, **CHOSEN, "enable_prefix_caching": True, "block_size": 32, "num_gpu_blocks_override": 1024},
    ),
    "nxdi prefix caching, the plugin's own example": spelled(
        "nxdi-0.16", {**CACHED, **OPTIONS, "neuron_config": BLOCKS}, {**nxdi(**OPTIONS, **BLOCKS), **CACHED}
    ),
    "nxdi draft model": spelled(
        "nxdi-0.16",
        DRAFT,
        {
            **SHAPE,
            **CHOSEN,
            **OFF,
            "speculative_config": {"method": "draft_model", "model": "/models/draft", "num_speculative_tokens": 4},
        },
    ),
    "nxdi LoRA": spelled(
        "nxdi-0.16",
        {
            "lora_modules": {"sql": "/adapters/sql"},
            "max_loras": 2,
            "max_lora_rank": 16,
            "lora_target_modules": ("q_proj",),
        },
        {
            **nxdi(lora_ckpt_json="/tmp/neuron-endpoint/lora-adapters.json", target_modules=["q_proj"]),
            "enable_lora": True,
            "max_loras": 2,
            "max_lora_rank": 16,
        },
    ),
    "nxdi multimodal": spelled(
        "nxdi-0.16",
        {"text_neuron_config": {"fused_qkv": True}, "vision_neuron_config": {"buckets": [8]}, "skip_warmup": True},
        nxdi(text_neuron_config={"skip_warmup": True, "fused_qkv": True}, vision_neuron_config={"buckets": [8]}),
    ),
    "nxdi LNC and artifacts": spelled(
        "nxdi-0.13",
        {"logical_nc_config": 2, "compiled_artifacts": "/artifacts"},
        {**SHAPE, **GRAMMARS, **OFF},
        NEURON_LOGICAL_NC_CONFIG="2",
        NEURON_COMPILED_ARTIFACTS="/artifacts",
    ),
    "nxdi artifacts that are yet in S3": spelled(
        "nxdi-0.16", {"compiled_artifacts": "s3://b/k"}, {**SHAPE, **CHOSEN, **OFF}
    ),
    "fork 0.9.1 EAGLE": spelled(
        "fork-0.9.1",
        EAGLE,
        fork(
            {"enable_eagle_speculation": True, "enable_fused_speculation": True},
            speculative_config={"model": "/models/eagle", "num_speculative_tokens": 5},
        ),
    ),
    "fork 0.7.2 draft model": spelled(
        "fork-0.7.2",
        DRAFT,
        fork(
            speculative_model="/models/draft",
            num_speculative_tokens=4,
            speculative_max_model_len=4096,
            use_v2_block_manager=True,
        ),
    ),
    "fork 0.9.1 draft model": spelled(
        "fork-0.9.1",
        DRAFT,
        fork(speculative_config={"model": "/models/draft", "num_speculative_tokens": 4}, use_v2_block_manager=True),
    ),
    "fork 0.7.2 LoRA": spelled(
        "fork-0.7.2",
        {"lora_modules": {"a": "/a"}, "max_loras": 2, "max_lora_rank": 256},
        fork(enable_lora=True, max_loras=2, max_lora_rank=256, lora_modules=[{"name": "a", "path": "/a"}]),
    ),
    "fork 0.9.1 LoRA": spelled(
        "fork-0.9.1",
        {"lora_modules": {"a": "/a"}, "max_loras": 1, "max_lora_rank": 256},
        fork({"lora_modules": [{"name": "a", "path": "/a"}]}, enable_lora=True, max_loras=1, max_lora_rank=256),
    ),
    "fork prefix caching": spelled(
        "fork-0.7.2",
        {"enable_prefix_caching": True, "block_size": 32},
        fork({"is_prefix_caching": True}, enable_prefix_caching=True, block_size=32),
    ),
    "fork chunked prefill": spelled(
        "fork-0.7.2",
        {"enable_chunked_prefill": True, "block_size": 32, "engine_args": {"max_num_batched_tokens": 256}},
        fork(enable_chunked_prefill=True, block_size=32, max_num_batched_tokens=256),
    ),
    "fork disaggregated prefill": spelled(
        "fork-0.7.2",
        {"disaggregation": "prefill", "engine_args": {"kv_transfer_config": {"kv_ip": "10.0.0.1", "kv_port": 8199}}},
        fork(
            kv_transfer_config={
                "kv_connector": "NeuronConnector",
                "kv_buffer_device": "cpu",
                "kv_buffer_size": 1000000000.0,
                "kv_rank": 0,
                "kv_role": "kv_producer",
                "kv_parallel_size": 2,
                "kv_ip": "10.0.0.1",
                "kv_port": 8199,
            }
        ),
        NEURON_RT_ASYNC_SENDRECV_EXPERIMENTAL_ENABLED="1",
        NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT="45645",
    ),
    "fork second node": spelled(
        "fork-0.9.1",
        {"nodes": 2, "neuron_env": {"NEURON_RANK_ID": "1", "MASTER_ADDR": "10.0.0.1"}},
        fork({"world_size": 64, "tp_degree": 32, "local_ranks_size": 32, "start_rank_id": 32}),
        MASTER_ADDR="10.0.0.1",
        ENABLE_NEURON_MULTI_NODE="true",
        WORLD_SIZE="2",
        NEURON_LOCAL_TP="32",
        NEURON_RANK_ID="1",
        NEURON_RT_ROOT_COMM_ID="10.0.0.1:63423",
    ),
    "fork CPU sampling": spelled(
        "fork-0.9.1",
        {"on_device_sampling": False},
        fork({"on_device_sampling_config": None}),
        NEURON_ON_DEVICE_SAMPLING_DISABLED="1",
    ),
    "native, the documented example": spelled(
        "native-0.24",
        {
            "block_size": 128,
            "kv_cache_quant": True,
            "context_encoding_buckets": (2048,),
            "engine_args": {
                "enable_prompt_embeds": True,
                "additional_config": {
                    "neuron_config": {
                        "num_seqs_buckets": [1, 2, 4, 8],
                        "kv_segment_size_buckets": [2048],
                        "on_device_sampling_config": {"all_greedy": True},
                    }
                },
            },
        },
        native(
            {
                "num_batched_tokens_buckets": [2048],
                "num_seqs_buckets": [1, 2, 4, 8],
                "kv_segment_size_buckets": [2048],
                "on_device_sampling_config": {"all_greedy": True},
                "fp8_packed_kv": True,
            },
            block_size=128,
            kv_cache_dtype="fp8",
            enable_prompt_embeds=True,
        ),
    ),
    "native EAGLE3": spelled(
        "native-0.24",
        {
            "speculation": "eagle3",
            "speculative_model": "eagle3-llama3.3-70b",
            "num_speculative_tokens": 5,
            "neuron_config": {"on_device_sampling_config": {"temperature": "0"}},
        },
        native(
            {"on_device_sampling_config": {"temperature": "0"}},
            speculative_config={"method": "eagle3", "model": "eagle3-llama3.3-70b", "num_speculative_tokens": 5},
        ),
    ),
    "native EAGLE3 with sampling on the CPU": spelled(
        "native-0.24",
        {
            "speculation": "eagle3",
            "speculative_model": "/models/draft",
            "num_speculative_tokens": 5,
            "neuron_config": {"on_device_sampling_config": None},
        },
        native(
            {"on_device_sampling_config": None},
            async_scheduling=False,
            speculative_config={"method": "eagle3", "model": "/models/draft", "num_speculative_tokens": 5},
        ),
    ),
    "native without buckets": spelled(
        "native-0.21",
        {"enable_bucketing": False},
        native({"num_batched_tokens_buckets": [2048], "num_seqs_buckets": [8]}),
    ),
    "native on-device sampling, async": spelled(
        "native-0.24", {"on_device_sampling": True, "async_mode": True}, native()
    ),
    "native CPU sampling": spelled(
        "native-0.24",
        {"on_device_sampling": False},
        native({"on_device_sampling_config": None}, async_scheduling=False),
    ),
    "native structured output": spelled(
        "native-0.24", {"structured_outputs": True}, native({"enable_structured_outputs": True}, async_scheduling=False)
    ),
    "native log probabilities": spelled("native-0.29", {"logprobs": True}, native(async_scheduling=False), **ROUTE),
    "native prefill in one step": spelled(
        "native-0.24",
        {"context_encoding_buckets": (128, 1024, 4096), "token_generation_buckets": (1024,)},
        native({"num_batched_tokens_buckets": [128, 1024, 4096], "decode_context_length_buckets": [1024]}, **WHOLE),
    ),
    "native without chunked prefill": spelled(
        "native-0.24", {"enable_chunked_prefill": False}, native(enable_chunked_prefill=False, **WHOLE)
    ),
    "native prefix caching of short contexts": spelled(
        "native-0.24",
        {"enable_prefix_caching": True, "max_model_len": 1024},
        native(max_model_len=1024, max_num_batched_tokens=512),
    ),
    "native short contexts": spelled(
        "native-0.24",
        {"max_model_len": 1024},
        native(max_model_len=1024, max_num_batched_tokens=1024, enable_prefix_caching=False),
    ),
    "native segments": spelled(
        "native-0.24",
        {"neuron_config": {"kv_segment_size_buckets": [512]}},
        native({"kv_segment_size_buckets": [512]}, max_num_batched_tokens=512),
    ),
    "native log probabilities with NxD Inference": spelled(
        "nxdi-0.16", {"logprobs": True}, nxdi(on_device_sampling_config=None)
    ),
    "native MXFP4": spelled("native-0.24", {"quantization": "mxfp4"}, native({"quantization": "mxfp4"})),
    "native vision": spelled(
        "native-0.24",
        {
            "vision_neuron_config": {"tp_size": 1, "dp_size": 8},
            "engine_args": {"additional_config": {"mm_language_model_only": True}},
        },
        native(
            additional_config={
                "mm_language_model_only": True,
                "neuron_config": ON_DEVICE,
                "vision_neuron_config": {"tp_size": 1, "dp_size": 8},
            }
        ),
    ),
    "native vision, 0.29": spelled(
        "native-0.29",
        {"vision_neuron_config": {"dp_size": 8}},
        native(additional_config={"neuron_config": ON_DEVICE, "encoder_neuron_config": {"dp_size": 8}}),
        **ROUTE,
    ),
    "native vision by the name of another version": spelled(
        "native-0.24",
        {"engine_args": {"additional_config": {"encoder_neuron_config": {"dp_size": 8}}}},
        native(additional_config={"neuron_config": ON_DEVICE, "vision_neuron_config": {"dp_size": 8}}),
    ),
    "native prefill server": spelled(
        "native-0.24",
        {"disaggregation": "prefill"},
        native(
            kv_transfer_config={
                "kv_connector": "NeuronNixlConnector",
                "kv_role": "kv_producer",
                "kv_buffer_device": "cuda",
                "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
            }
        ),
    ),
    "native decode server of several ranks to a sequence": spelled(
        "native-0.24",
        {"disaggregation": "decode", "engine_args": {"decode_context_parallel_size": 2}},
        native(
            decode_context_parallel_size=2,
            block_size=32,
            cp_kv_cache_interleave_size=32,
            kv_transfer_config={
                "kv_connector": "NeuronNixlConnector",
                "kv_role": "kv_consumer",
                "kv_buffer_device": "cuda",
                "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
            },
        ),
    ),
    "native modules that are not quantized": spelled(
        "native-0.24",
        {
            "quantization": "mxfp8",
            "modules_to_not_convert": ("lm_head",),
            "engine_args": {"kv_cache_dtype": "fp8_e4m3"},
        },
        native(
            {"fp8_packed_kv": True, "quantization": "mxfp8", "modules_to_not_convert": ["lm_head"]},
            kv_cache_dtype="fp8_e4m3",
        ),
    ),
    "native connector of one's own": spelled(
        "native-0.24",
        {"engine_args": {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}}},
        native(
            kv_transfer_config={"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cuda"},
        ),
    ),
    "optimum": spelled(
        "optimum",
        {},
        {**SHAPE, "max_num_batched_tokens": SHAPE["max_model_len"] + SHAPE["max_num_seqs"]},
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
    ),
    "cpu": spelled(
        "cpu",
        {"enable_prefix_caching": True, "engine_args": {"seed": 1}, "served_model_name": ("a", "b")},
        {**SHAPE, **GRAMMARS, "enable_prefix_caching": True, "seed": 1, "served_model_name": ["a", "b"]},
    ),
    "cpu speculation of vLLM's own": spelled(
        "cpu",
        {
            "installed": {"vllm": "0.29.0"},
            "engine_args": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
        },
        {**SHAPE, **GRAMMARS, "speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_line_spells_it_so(name: str) -> None:
    line, settings, args, env = SPELLINGS[name]
    plan = planned(line, **{**SHAPE, **settings})
    assert dict(plan.engine_args) == args
    assert dict(plan.env) == env


@pytest.mark.parametrize(("length", "sequences"), [(1000, 4), (4096, 2), (33, 3)])
def test_blocks_are_enough_when_the_length_is_no_multiple(length: int, sequences: int) -> None:
    plan = planned("nxdi-0.16", enable_prefix_caching=True, max_model_len=length, max_num_seqs=sequences)
    assert plan.engine_args["num_gpu_blocks_override"] == -(-length // 32) * sequences


def test_a_block_count_of_ones_own_must_agree_with_the_override() -> None:
    plan = planned("nxdi-0.16", enable_prefix_caching=True, max_num_seqs=4, neuron_config={"pa_num_blocks": 2048})
    assert plan.engine_args["num_gpu_blocks_override"] == 2048


def test_the_sampling_variable_reaches_a_multimodal_models_text_configuration() -> None:
    plan = planned(
        "nxdi-0.16", vision_neuron_config={}, neuron_env={"NEURON_ON_DEVICE_SAMPLING_DISABLED": "1"}, **SHAPE
    )
    override = {"text_neuron_config": {"on_device_sampling_config": None}}
    assert plan.engine_args["additional_config"] == {"override_neuron_config": override}


def test_adapters_do_not_fit_a_multimodal_override() -> None:
    result = outcome(
        "nxdi-0.16", vision_neuron_config={"buckets": [1]}, lora_modules={"a": "/a"}, lora_target_modules=("q_proj",)
    )
    assert {finding.code for finding in result.errors} == {"multimodal-override"}


@pytest.mark.parametrize(
    ("line", "draft", "method"),
    [
        ("nxdi-0.16", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", "eagle"),
        ("native-0.24", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
        ("native-0.29", "s3://bucket/Qwen3-8B_eagle3/", "eagle3"),
        ("cpu", "/models/eagle3-8b", "eagle3"),
        ("nxdi-0.16", "/models/eagle-trials/llama-1b", "draft_model"),
    ],
)
def test_a_missing_method_is_read_from_the_drafts_name(line: str, draft: str, method: str) -> None:
    installed = {"vllm": "0.29.0"} if line == "cpu" else {}
    plan = planned(line, installed=installed, speculative_model=draft, num_speculative_tokens=3)
    assert plan.engine_args["speculative_config"] == {"method": method, "model": draft, "num_speculative_tokens": 3}


def test_a_missing_method_is_read_from_the_drafts_architecture() -> None:
    draft = llama(architectures=("Eagle3LlamaForCausalLM",))
    result = outcome("native-0.24", speculative_model="/draft", num_speculative_tokens=3, draft_model=draft)
    assert result.plan is not None
    assert mapping(result.plan.engine_args["speculative_config"])["method"] == "eagle3"


def test_the_encoders_section_is_given_once_and_named_as_it_was_typed() -> None:
    typed = {"additional_config": {"encoder_neuron_config": {"tp_size": 3}}}
    name = "additional_config.encoder_neuron_config.tp_size"
    assert found(outcome("native-0.29", engine_args=typed), "vision-degrees").setting == name
    both = {"additional_config": {"encoder_neuron_config": {"tp_size": 1}, "vision_neuron_config": {"tp_size": 8}}}
    assert outcome("native-0.29", engine_args=both).plan is None


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("nxdi-0.16", {"enable_chunked_prefill": True}, "enable_chunked_prefill", "nxdi-0.13"),
    ("nxdi-0.16", {"disaggregation": "prefill"}, "disaggregation", "native-0.24"),
    ("nxdi-0.16", {"nodes": 2}, "nodes", "fork-0.9.1"),
    ("nxdi-0.16", {**EAGLE, "speculation": "eagle3"}, "speculation", "native-0.24"),
    ("nxdi-0.13", DRAFT, "speculative_model", "nxdi-0.16"),
    ("nxdi-0.13", {"lora_modules": {"a": "/a"}}, "lora_modules", "nxdi-0.16"),
    ("nxdi-0.16", {"fused_speculation": False, **DRAFT}, "fused_speculation", "no line has it"),
    ("nxdi-0.16", {**DRAFT, "speculation": "eagle3", "instance": TRN1}, "speculation", "no line on trn1 has it"),
    ("native-0.24", {"qkv_kernel_enabled": True}, "qkv_kernel_enabled", "nxdi-0.16"),
    ("native-0.24", {"skip_warmup": True}, "skip_warmup", "nxdi-0.16"),
    ("native-0.24", EAGLE, "speculation", "nxdi-0.16"),
    ("native-0.24", {"quantization": "int8"}, "quantization", "nxdi-0.16"),
    ("native-0.24", {"global_topk": 64}, "global_topk", "nxdi-0.16"),
    ("optimum", {"enable_prefix_caching": True}, "enable_prefix_caching", "nxdi-0.16"),
    ("optimum", {"enable_chunked_prefill": True}, "enable_chunked_prefill", "nxdi-0.13"),
    ("optimum", {"num_gpu_blocks_override": 8}, "num_gpu_blocks_override", "nxdi-0.16"),
    ("optimum", {"lora_modules": {"a": "/a"}}, "lora_modules", "nxdi-0.16"),
    ("optimum", DRAFT, "speculative_model", "nxdi-0.16"),
    ("optimum", {"neuron_config": {"skip_warmup": True}}, "skip_warmup", "nxdi-0.16"),
    ("cpu", {"on_device_sampling": True}, "on_device_sampling", "nxdi-0.16"),
    ("cpu", {"enable_bucketing": True}, "enable_bucketing", "nxdi-0.16"),
]


@pytest.mark.parametrize(("line", "settings", "setting", "elsewhere"), REFUSED)
def test_a_feature_that_the_line_does_not_have_is_an_error_with_the_setting(
    line: str, settings: dict[str, Any], setting: str, elsewhere: str
) -> None:
    result = outcome(line, **settings)
    finding = found(result, "unsupported-by-line")
    assert result.plan is None
    assert finding.setting == setting
    assert line in finding.why
    assert elsewhere in finding.fix


def test_the_suggested_lines_run_on_the_instance() -> None:
    finding = found(outcome("nxdi-0.16", disaggregation="decode", instance=TRN2), "unsupported-by-line")
    assert "fork-0.9.1" in finding.fix
    assert "transformers-neuronx" not in finding.fix


@pytest.mark.parametrize("line", ["cpu", "optimum", "native-0.24"])
def test_what_is_switched_off_asks_for_nothing(line: str) -> None:
    off: dict[str, Any] = {"qkv_kernel_enabled": False, "sequence_parallel_enabled": False, "on_device_sampling": False}
    assert outcome(line, **off).errors == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"context_encoding_buckets": [512, 8192]},
        {"neuron_config": {"context_encoding_buckets": [512, 8192]}},
        {"neuron_config": {"max_context_length": 8192}},
        {"neuron_config": {"token_generation_buckets": [8192]}},
        {"text_neuron_config": {"max_context_length": 8192}},
    ],
)
def test_the_length_that_a_plan_chooses_has_room_for_every_prompt(settings: dict[str, Any]) -> None:
    assert planned("nxdi-0.16", facts=llama(), **settings).engine_args["max_model_len"] == 8192


@pytest.mark.parametrize("line", ["nxdi-0.13", "nxdi-0.16"])
def test_no_line_of_nxd_inference_spreads_the_cache_of_a_sequence(line: str) -> None:
    """vLLM would count blocks of several times their tokens, and NxD Inference keep each of them whole."""
    arguments = {"decode_context_parallel_size": 4, "tensor_parallel_size": 32}
    result = outcome(line, facts=llama(heads=32, kv_heads=8), instance=TRN2, engine_args=arguments)
    assert [finding.code for finding in result.errors] == ["unsupported-by-line"]
    assert "native-0.29" in result.errors[0].fix
    whole = {**arguments, "decode_context_parallel_size": 1}
    assert not outcome(line, facts=llama(heads=32, kv_heads=8), instance=TRN2, engine_args=whole).errors
