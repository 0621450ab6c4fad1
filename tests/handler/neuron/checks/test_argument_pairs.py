"""Values that vLLM rejects together, and their neighbours, which it accepts. Each was given to vLLM's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.hardware.current_machine import HostCpu
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import llama, outcome

CPU, LATER = "0.16.0", "0.29.0"
VERSIONS = (CPU, "0.24.0", LATER)
NEWEST = "0.32.0"
SPECULATIVE = (LATER,)  # a CPU has no speculation before


def speculating(method: str, **keys: Any) -> dict[str, Any]:
    return {"speculative_config": {"method": method, "num_speculative_tokens": 1, **keys}}


def context(degree: int, ranks: int) -> dict[str, Any]:
    return {"decode_context_parallel_size": degree, "tensor_parallel_size": ranks}


def asynchronous(method: str, **keys: Any) -> dict[str, Any]:
    return {"async_scheduling": True, **speculating(method, **keys)}


def offloading(size: int, offloaded: int, **others: Any) -> dict[str, Any]:
    return {"offload_group_size": size, "offload_num_in_group": offloaded, **others}


def ranked(rank: int) -> dict[str, Any]:
    return {"data_parallel_size": 2, "data_parallel_rank": rank, "data_parallel_address": "10.0.0.4"}


def transferring(connector: str, **extra: Any) -> dict[str, Any]:
    transfer = {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return {"kv_transfer_config": transfer}


def nodes(count: int, **others: Any) -> dict[str, Any]:
    return {"nnodes": count, "master_addr": "10.0.0.4", **others}


def skipping(*layers: str) -> dict[str, Any]:
    return {"kv_cache_dtype_skip_layers": list(layers)}


def publishing(address: str, **keys: Any) -> dict[str, Any]:
    return {"kv_events_config": {"enable_kv_cache_events": True, "endpoint": address, **keys}}


def auxiliary(asked: Json) -> dict[str, Any]:
    return {"aux_output_config": {"enable_return_routed_experts": asked}}


ENGINES: dict[str, Any] = {"data_parallel_size": 2, "data_parallel_address": "10.0.0.4"}
TURBO_QUANT: dict[str, Any] = {"kv_cache_dtype": "turboquant_4bit_nc"}


REJECTED: list[tuple[str, str, dict[str, Any]]] = [
    *[("speculation-method", version, speculating("nope")) for version in SPECULATIVE],
    *[("speculation-method", version, speculating("mtp")) for version in SPECULATIVE],
    *[("speculation-method", version, speculating("deepseek_mtp")) for version in SPECULATIVE],
    *[("speculation-method", version, speculating("mlp_speculator")) for version in SPECULATIVE],
    *[
        ("cpu-speculation", version, speculating(method))
        for version in ("0.11.0", *VERSIONS[:2])
        for method in ("ngram", "mtp")
    ],
    *[("cpu-block", version, {"block_size": block}) for version, block in ((CPU, 8), ("0.24.0", 24), (LATER, 16))],
    *[("mamba-mode", version, {"mamba_cache_mode": "align"}) for version in VERSIONS],
    *[("cpu-kv-offloading", version, {"kv_offloading_size": 0.5}) for version in VERSIONS],
    ("engram-layers", NEWEST, {"engram_config": {}}),
    *[("auxiliary-outputs", NEWEST, auxiliary(asked)) for asked in (True, 1, "yes")],
    *[("rejected-by-vllm", version, {"pooler_config": {"logit_sigma": 0}}) for version in (LATER, NEWEST)],
    ("engram-layers", NEWEST, {"engram_config": {"cpu_offload": True}}),
    ("rejected-by-vllm", NEWEST, {"watermark_config": {}}),
    ("rejected-by-vllm", NEWEST, {"watermark_config": {"key": 1, "misspelled": 1}}),
    *[("kv-events-address", version, publishing("5557")) for version in (*VERSIONS, NEWEST)],
    *[("kv-events-address", version, publishing("tcp://*:5557", replay_endpoint="5558")) for version in VERSIONS],
    *[("prompt-lookup", LATER, speculating("ngram", prompt_lookup_max=longest)) for longest in (0, -9)],
    ("deprecated-quantization", CPU, {"quantization": "experts_int8"}),
    ("deprecated-quantization", LATER, {"quantization": "fp_quant"}),
    *[("routed-experts", version, {"enable_return_routed_experts": True}) for version in VERSIONS],
    ("speculation-method", LATER, speculating("[ngram]")),
    ("speculation-method", LATER, speculating("dflash")),
    *[
        ("prompt-lookup", version, speculating("ngram", prompt_lookup_min=5, prompt_lookup_max=2))
        for version in SPECULATIVE
    ],
    ("prompt-lookup", LATER, speculating("ngram_gpu", prompt_lookup_min=5, prompt_lookup_max=2)),
    *[
        ("adapters-in-memory", version, {"enable_lora": True, "max_cpu_loras": 1, "max_loras": 4})
        for version in (CPU, LATER)
    ],
    *[("optimization-level", version, {"optimization_level": "7"}) for version in (CPU, LATER)],
    ("optimization-level", CPU, {"optimization_level": "-1"}),
    *[
        ("async-scheduling-alone", version, asynchronous(method))
        for version in (*SPECULATIVE, NEWEST)
        for method in ("ngram", "suffix")
    ],
    *[
        ("async-scheduling-alone", version, asynchronous("eagle", model="/d", disable_padded_drafter_batch=True))
        for version in (*SPECULATIVE, NEWEST)
    ],
    ("async-scheduling-alone", LATER, asynchronous("custom_class", model="a.B")),
    *[("offloaded-layers", version, offloading(2, 5)) for version in ("0.24.0", LATER, NEWEST)],
    ("offloaded-layers", LATER, offloading(2, 1, offload_prefetch_step=0)),
    *[("skipped-layers", version, TURBO_QUANT | skipping("0", "sliding_window")) for version in ("0.24.0", LATER)],
    *[("nodes-and-ranks", version, nodes(2)) for version in (CPU, LATER)],
    ("nodes-and-ranks", CPU, nodes(3, tensor_parallel_size=2)),
    ("nodes-and-ranks", CPU, nodes(2, tensor_parallel_size=2, data_parallel_backend="ray")),
    ("nodes-and-ranks", LATER, nodes(2, tensor_parallel_size=2, distributed_executor_backend="ray")),
    *[("connector-parts", version, transferring("MultiConnector")) for version in VERSIONS],
    ("connector-parts", "0.24.0", transferring("MultiConnector", connectors={})),
    *[("connector-on-cpu", version, transferring("OffloadingConnector", cpu_bytes_to_use=9)) for version in VERSIONS],
    ("connector-on-cpu", CPU, transferring("ExampleConnector", shared_storage_path="/kv")),
    *[("external-engine", version, {"data_parallel_rank": 0}) for version in (*VERSIONS, NEWEST)],
    *[("external-engine", version, ranked(1)) for version in (*VERSIONS[1:], NEWEST)],  # not a model with experts
    ("external-engine", CPU, ranked(2)),
    ("external-engine", CPU, {"data_parallel_size": 2, "data_parallel_external_lb": True}),
    *[("first-node", version, {"nnodes": 2, "tensor_parallel_size": 2}) for version in (CPU, LATER)],
]
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    (NEWEST, {"watermark_config": {"key": 1}}),
    (NEWEST, auxiliary(False)),
    (NEWEST, {"pooler_config": {"logit_sigma": 0.5}}),
    *[(version, ENGINES) for version in (CPU, LATER)],
    *[(version, {**ENGINES, "data_parallel_size_local": local}) for version in (CPU, LATER) for local in (0, 1)],
    (LATER, {"data_parallel_size": 4, "data_parallel_size_local": 2, "master_addr": "10.0.0.4"}),
    (LATER, speculating("ngram", prompt_lookup_min=2, prompt_lookup_max=2)),
    (LATER, speculating("ngram", prompt_lookup_min=6)),
    (LATER, speculating("ngram", prompt_lookup_max=2)),
    (LATER, speculating("suffix", prompt_lookup_min=5, prompt_lookup_max=2)),
    (LATER, speculating("ngram_gpu", prompt_lookup_min=1, prompt_lookup_max=2)),
    (LATER, speculating("extract_hidden_states")),
    (LATER, speculating("mlp_speculator", model="/models/draft")),
    *[(version, asynchronous("eagle", model="/models/draft")) for version in (*SPECULATIVE, NEWEST)],
    *[(version, asynchronous("ngram_gpu")) for version in (LATER, NEWEST)],
    (LATER, asynchronous("dspark", model="/models/draft")),
    *[(version, {**asynchronous("ngram"), "async_scheduling": False}) for version in SPECULATIVE],
    *[(version, {"block_size": 16}) for version in VERSIONS[:2]],
    *[(version, {"block_size": 96}) for version in VERSIONS[1:]],
    *[(version, {"mamba_cache_mode": "align", "enable_prefix_caching": False}) for version in VERSIONS],
    *[(version, publishing("tcp://*:5557", replay_endpoint="tcp://*:5558")) for version in VERSIONS],
    *[(version, publishing("5557", publisher="null")) for version in VERSIONS],
    (CPU, {"quantization": "experts_int8", "allow_deprecated_quantization": True}),
    (LATER, {"quantization": "experts_int8"}),
    (CPU, {"enable_lora": True, "max_cpu_loras": 4, "max_loras": 4}),
    (CPU, {"enable_lora": True, "max_cpu_loras": 1}),
    (CPU, {"enable_lora": True, "max_cpu_loras": 0, "max_loras": 4}),
    *[(version, {"enable_lora": True, "max_cpu_loras": -1, "max_loras": 4}) for version in (CPU, LATER)],
    (CPU, {"enable_lora": False, "max_cpu_loras": 1, "max_loras": 4}),
    (CPU, {"max_cpu_loras": 1, "max_loras": 4}),
    *[(CPU, {"optimization_level": level}) for level in ("0", "3")],
    *[(version, context(1, 8)) for version in VERSIONS],
    *[(version, offloading(5, 2)) for version in ("0.24.0", LATER, NEWEST)],
    (LATER, offloading(0, 5)),
    *[(version, TURBO_QUANT | skipping("0", "11")) for version in ("0.24.0", LATER)],
    (NEWEST, TURBO_QUANT | skipping("sliding_window")),
    (LATER, skipping("sliding_window")),
    (CPU, {"nnodes": 1}),
    (CPU, ranked(1)),
    (CPU, {**ranked(0), "data_parallel_external_lb": True}),
    *[(version, transferring("ExampleConnector", shared_storage_path="/kv")) for version in VERSIONS[1:]],
    (LATER, transferring("MultiConnector", connectors=[{"kv_connector": "ExampleConnector", "kv_role": "kv_both"}])),
    *[(version, nodes(2, tensor_parallel_size=2)) for version in (CPU, LATER)],
    (CPU, nodes(2, pipeline_parallel_size=2)),
    (LATER, nodes(4, pipeline_parallel_size=2, tensor_parallel_size=2)),
    *[(version, nodes(2, data_parallel_size=2)) for version in (CPU, LATER)],
    (CPU, nodes(2, tensor_parallel_size=2, distributed_executor_backend="uni")),
    *[(version, {**ENGINES, "data_parallel_size_local": local}) for version in (CPU, LATER) for local in (1, 2)],
    (LATER, {"data_parallel_size": 2}),
]


@pytest.mark.parametrize(("code", "version", "arguments"), REJECTED)
def test_vllm_rejects_both_together(code: str, version: str, arguments: dict[str, Any]) -> None:
    result = outcome("cpu", facts=llama(), installed={"vllm": version}, engine_args=arguments)
    assert [finding.code for finding in result.errors] == [code]


@pytest.mark.parametrize(("version", "arguments"), ACCEPTED)
def test_vllm_accepts_what_is_near(version: str, arguments: dict[str, Any]) -> None:
    result = outcome("cpu", facts=llama(), installed={"vllm": version}, engine_args=arguments)
    assert not result.errors


@pytest.mark.parametrize(("flags", "starts"), [({"avx2"}, False), ({"avx2", "avx512f"}, True), ({"amx_tile"}, True)])
@pytest.mark.parametrize("version", [*VERSIONS, NEWEST])
def test_an_fp8_cache_needs_instructions_of_the_cpu(version: str, flags: set[str], starts: bool) -> None:
    cache: dict[str, Json] = {"enable_prefix_caching": False, "enable_chunked_prefill": False, "max_model_len": 512}
    config = EndpointConfig(model="/m", line="cpu", engine_args={**cache, "kv_cache_dtype": "fp8_e5m2"})
    machine = HostCpu(frozenset(flags), 16 << 30, 16 << 30)
    made = make_plan(config, llama(), None, installed={"vllm": version}, cpu=machine)
    assert [finding.code for finding in made.errors] == ["cpu-fp8-cache"] * (not starts and version != CPU)


@pytest.mark.parametrize(("path", "refused"), [("/models/draft", True), ("/models/eagle-draft", False)])
@pytest.mark.parametrize("own", [True, False])
def test_several_tokens_of_a_plain_model(path: str, refused: bool, own: bool) -> None:
    arguments, model = (speculating("mtp"), path) if own else (speculating("mtp", model=path), "/models/llama")
    made = outcome(
        "cpu", facts=llama(), draft_model=llama(), installed={"vllm": LATER}, model=model, engine_args=arguments
    )
    assert [finding.code for finding in made.errors] == ["speculation-method"] * refused


@pytest.mark.parametrize("version", [*SPECULATIVE, NEWEST])
@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [("/models/draft", "medusa", True), ("/models/eagle-draft", "medusa", False), ("/models/draft", "llama", False)],
)
def test_vllm_finds_by_the_draft_itself_whether_it_can_be_asynchronous(
    version: str, path: str, kind: str, refused: bool
) -> None:
    made = outcome(
        "cpu",
        facts=llama(),
        draft_model=llama(model_type=kind),
        installed={"vllm": version},
        engine_args=asynchronous("medusa", model=path),
    )
    assert [finding.code for finding in made.errors] == ["async-scheduling-alone"] * refused


@pytest.mark.parametrize("version", [*VERSIONS, NEWEST])
@pytest.mark.parametrize(
    ("kind", "dtype", "refused"),
    [
        *[(kind, dtype, True) for kind in ("gemma2", "gemma3", "gemma3_text", "glm4") for dtype in ("half", "float16")],
        *[("gemma2", dtype, False) for dtype in ("auto", "bfloat16", "float32")],
        *[(kind, "half", False) for kind in ("gemma", "llama")],
    ],
)
def test_a_model_that_vllm_does_not_run_in_float16(version: str, kind: str, dtype: str, refused: bool) -> None:
    facts = llama(model_type=kind, torch_dtype="float16")
    made = outcome("cpu", facts=facts, installed={"vllm": version}, engine_args={"dtype": dtype})
    assert [finding.code for finding in made.errors] == ["dtype-of-model"] * refused


@pytest.mark.parametrize(("version", "refused"), [(CPU, True), ("0.24.0", True), (LATER, False), (NEWEST, False)])
def test_later_versions_run_plamo_2_in_float16(version: str, refused: bool) -> None:
    facts = llama(model_type="plamo2")
    made = outcome("cpu", facts=facts, installed={"vllm": version}, engine_args={"dtype": "half"})
    assert [finding.code for finding in made.errors] == ["dtype-of-model"] * refused


@pytest.mark.parametrize("line", ["native-0.24", "native-0.29"])
@pytest.mark.parametrize(("experts", "why"), [(0, "for models with experts only"), (8, None)])
def test_one_engine_of_several_has_a_model_with_experts(line: str, experts: int, why: str | None) -> None:
    """The reason is not that there is one engine: there are two."""
    made = outcome(line, facts=llama(experts=experts), engine_args=ranked(1))
    refused = [each for each in made.errors if each.setting == "data_parallel_rank"]
    assert [why for each in refused if why and why in each.why] == [why] * bool(why)
    assert len(refused) == bool(why)


@pytest.mark.parametrize("facts", [None, llama(architectures=("DeepseekV3ForCausalLM",), model_type="deepseek_v3")])
def test_a_model_that_may_predict_several_tokens_is_not_refused(facts: Any) -> None:
    assert not outcome("cpu", facts=facts, installed={"vllm": LATER}, engine_args=speculating("mtp")).errors


@pytest.mark.parametrize("line", ["native-0.24", "native-0.29"])
@pytest.mark.parametrize(
    ("degree", "ranks", "heads", "kv_heads", "starts"),
    [
        *[(degree, ranks, 32, 8, True) for degree, ranks in ((1, 8), (2, 16), (4, 32))],
        *[(degree, ranks, 32, 8, False) for degree, ranks in ((2, 8), (8, 8))],
        (2, 12, 12, 4, False),
    ],
)
def test_a_degree_of_context_parallelism_divides_the_heads_of_a_kv_head(
    line: str, degree: int, ranks: int, heads: int, kv_heads: int, starts: bool
) -> None:
    result = outcome(line, facts=llama(heads=heads, kv_heads=kv_heads), engine_args=context(degree, ranks))
    assert ("decode-context-parallel" in {finding.code for finding in result.errors}) is not starts


def test_layers_that_look_up_n_grams_can_be_configured() -> None:
    facts = llama(architectures=("DeepseekV41ForCausalLM",), config={"engram_layer_ids": [1]})
    made = outcome("cpu", facts=facts, installed={"vllm": NEWEST}, engine_args={"engram_config": {"cpu_offload": True}})
    assert "engram-layers" not in {finding.code for finding in made.findings}


def test_what_an_object_needs_is_named_with_what_to_do() -> None:
    made = outcome("cpu", facts=llama(), installed={"vllm": NEWEST}, engine_args={"watermark_config": {"alpha": 0.5}})
    (finding,) = made.errors
    assert (finding.setting, finding.fix) == ("watermark_config.key", "Give it, or remove watermark_config.")
