from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.hardware.instance_catalogue import GIB, INSTANCES, find
from handler.neuron.memory.memory_estimate import MemoryEstimate, Verdict, estimate
from handler.neuron.memory.rank_weights import Heads, rank_weights, shard_heads
from tests.handler.neuron.published_models import GPT_OSS, LLAMA_8B, LLAMA_70B, LLAMA_405B, MODELS, published

EAGLE_405B = "s3://your-bucket/EAGLE-llama-3-405b"
LLAMA_1B = "meta-llama/Llama-3.2-1B-Instruct"


def of(model: str, instance: str, *, draft: str | None = None, **given: Any) -> MemoryEstimate:
    config = EndpointConfig(model=model, **given)
    found = estimate(published(model), config, find(instance, hosting=False), draft=published(draft) if draft else None)
    assert found is not None
    return found


def part(found: MemoryEstimate, name: str) -> int:
    return next(part.size for part in found.parts if part.name == name)


def test_by_hand_8b_in_bfloat16_on_the_smallest_instance() -> None:
    """Two ranks: 8.03 B parameters and two bytes each, the norms on both; four KV heads of 128 on each."""
    found = of(LLAMA_8B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=4096, max_num_seqs=4)
    norms = (2 * 32 + 1) * 4096
    assert part(found, "weights") == (8_030_261_248 - norms) // 2 * 2 + norms * 2
    assert part(found, "KV cache") == 2 * 32 * 4 * 128 * 4096 * 4 * 2
    assert found.available == 16 * GIB
    assert found.verdict is Verdict.FITS
    assert found.host_needed > found.host_available  # 30 of 16 GiB, to load what fits the device


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({"neuron_config": {"pp_degree": 2}}, 1),
        ({"engine_args": {"data_parallel_size": 8}}, 8),
        ({"engine_args": {"data_parallel_size": 8, "data_parallel_size_local": 2}}, 2),
        ({"engine_args": {"data_parallel_size": 8, "data_parallel_size_local": 1}}, 1),
        ({"engine_args": {"data_parallel_size": 8, "data_parallel_rank": 3}}, 1),
    ],
)
def test_a_host_loads_the_whole_model_for_each_of_its_engines(settings: dict[str, Any], times: int) -> None:
    alone = of(LLAMA_8B, "trn2.48xlarge", tensor_parallel_size=8)
    found = of(LLAMA_8B, "trn2.48xlarge", tensor_parallel_size=8, **settings)
    assert found.host_needed == times * alone.host_needed


def test_by_hand_405b_in_bfloat16_over_64() -> None:
    found = of(LLAMA_405B, "trn2.48xlarge", tensor_parallel_size=64, max_model_len=2048, max_num_seqs=1)
    layer = 2 * 16384 * 256 + 2 * 16384 * 128 + 3 * 16384 * 832 + 2 * 16384
    assert part(found, "weights") == 2 * (126 * layer + 16384 + 2 * 128256 * 256)
    assert part(found, "KV cache") == 2 * 126 * 1 * 128 * 2048 * 2
    assert found.available == 24 * GIB
    assert found.verdict is Verdict.FITS


# What others report to run: the estimate must not refuse it. huggingface/optimum-neuron, docs/source/benchmarks/ and
# benchmark/vllm/single-instance/ (.env); the 405B and 70B tutorials of aws-neuron/aws-neuron-sdk.


@pytest.mark.parametrize(
    ("model", "instance", "length", "sequences", "verdict"),
    [
        (LLAMA_405B, "trn1.32xlarge", 2048, 1, Verdict.DOES_NOT_FIT),
        (LLAMA_70B, "inf2.24xlarge", 2048, 1, Verdict.DOES_NOT_FIT),
        (LLAMA_8B, "inf2.xlarge", 4096, 20, Verdict.TIGHT),
        (LLAMA_8B, "inf2.xlarge", 4096, 64, Verdict.DOES_NOT_FIT),
    ],
)
def test_verdicts(model: str, instance: str, length: int, sequences: int, verdict: Verdict) -> None:
    assert of(model, instance, max_model_len=length, max_num_seqs=sequences).verdict is verdict


def test_assumptions_alone_never_refuse() -> None:
    """The longest prefill without flash attention is an assumption: it may warn, not stop."""
    found = of(LLAMA_8B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=4095, max_num_seqs=1, ctx_batch_size=16)
    assert found.total > found.available > found.certain
    assert found.verdict is Verdict.TIGHT


def test_fp8_weights_take_a_byte_where_they_are_converted() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 64, "max_model_len": 2048, "max_num_seqs": 1}
    plain = part(of(LLAMA_405B, "trn2.48xlarge", **common), "weights")
    mlp = 126 * 3 * 16384 * 832
    attention = 126 * (2 * 16384 * 256 + 2 * 16384 * 128)
    everything = part(of(LLAMA_405B, "trn2.48xlarge", quantization="fp8", **common), "weights")
    assert plain - everything == mlp + attention
    kept = ("self_attn", "layers.0.mlp", "layers.125.mlp", "lm_head")
    partly = part(of(LLAMA_405B, "trn2.48xlarge", quantization="fp8", modules_to_not_convert=kept, **common), "weights")
    assert plain - partly == mlp // 126 * 124


@pytest.mark.parametrize(
    ("asked", "checkpoint", "dtypes", "bytes_each"),
    [
        (None, None, {}, 2),
        ("fp8", None, {}, 2),  # the plan has no key for it: the checkpoint decides
        (None, "modelopt", {}, 1),
        (None, "modelopt", {"BF16": 1, "F8_E4M3": 1}, 1),
        (None, "modelopt", {"BF16": 1}, 2),  # its KV cache alone
        ("mxfp8", None, {}, 2),  # Llama has no MXFP8
        ("bf16", "modelopt", {}, 2),
    ],
)
def test_on_the_native_lines_the_checkpoint_quantizes(
    asked: str | None, checkpoint: str | None, dtypes: dict[str, int], bytes_each: int
) -> None:
    own: dict[str, Any] = {"quantization_config": {"quant_method": checkpoint}} if checkpoint else {}
    facts = replace(facts_from({**MODELS[LLAMA_405B]["config"], **own}, "m", False), dtypes=dtypes)
    config = EndpointConfig(
        line="native-0.29", quantization=asked, tensor_parallel_size=32, max_model_len=2048, max_num_seqs=1
    )
    estimated = estimate(facts, config, find("trn2.48xlarge"))
    assert estimated is not None
    linear = 126 * (2 * 16384 * 512 + 2 * 16384 * 128 + 3 * 16384 * 1664)
    assert part(estimated, "weights") // linear == bytes_each
    assert (estimated.verdict is Verdict.DOES_NOT_FIT) is (bytes_each == 2)


@pytest.mark.parametrize(
    ("name", "settings", "line", "narrow"),
    [
        ("Qwen3VLForConditionalGeneration", {"quantization": "mxfp8"}, "native-0.24", True),
        ("Qwen3VLForConditionalGeneration", {"neuron_config": {"quantization": "MXFP8"}}, "native-0.24", False),
        ("Qwen3ForCausalLM", {"quantization": "mxfp8"}, "native-0.29", True),
        ("Qwen3ForCausalLM", {"quantization": "mxfp8"}, "native-0.24", False),
        ("GptOssForCausalLM", {"quantization": "mxfp4"}, "native-0.24", True),
        ("GptOssForCausalLM", {"quantization": "mxfp8"}, "native-0.24", False),
        ("OtherForCausalLM", {"quantization": "mxfp8"}, "native-0.24", True),
    ],
)
def test_weights_are_narrow_where_the_model_has_it(
    name: str, settings: dict[str, Any], line: str, narrow: bool
) -> None:
    facts = replace(facts_from(MODELS[LLAMA_8B]["config"], "m", False), architectures=(name,))
    estimated = estimate(facts, EndpointConfig(line=line, **settings), find("trn2.48xlarge"))
    assert estimated is not None
    assert estimated.shape.quantized is narrow


def test_an_fp8_cache_takes_half() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 4096, "max_num_seqs": 8}
    full = part(of(LLAMA_8B, "inf2.24xlarge", **common), "KV cache")
    assert part(of(LLAMA_8B, "inf2.24xlarge", kv_cache_quant=True, **common), "KV cache") * 2 == full


def test_float32_takes_twice_bfloat16() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 4096, "max_num_seqs": 1}
    half = part(of(LLAMA_8B, "inf2.24xlarge", **common), "weights")
    assert part(of(LLAMA_8B, "inf2.24xlarge", dtype="float32", **common), "weights") == 2 * half


def test_a_draft_counts_with_its_cache() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 64, "max_model_len": 2048, "max_num_seqs": 1}
    found = of(LLAMA_405B, "trn2.48xlarge", draft=LLAMA_1B, speculative_model=LLAMA_1B, **common)
    assert part(found, "draft KV cache") == 2 * 16 * 1 * 64 * 2048 * 2
    assert part(found, "draft weights") > 1_235_814_400 * 2 / 64
    eagle = of(LLAMA_405B, "trn2.48xlarge", draft=EAGLE_405B, speculative_model=EAGLE_405B, **common)
    assert part(eagle, "draft weights") > 5 * part(found, "draft weights") / 2
    fp8 = of(LLAMA_405B, "trn2.48xlarge", draft=LLAMA_1B, speculative_model=LLAMA_1B, quantization="fp8", **common)
    assert part(fp8, "draft weights") == part(found, "draft weights")  # the target's quantization is not the draft's
    unknown = of(LLAMA_405B, "trn2.48xlarge", speculative_model=EAGLE_405B, **common)
    assert any("draft model is not counted" in note for note in unknown.notes)


def test_a_tied_head_is_a_copy_on_the_device() -> None:
    found = of(LLAMA_1B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=2048, max_num_seqs=1)
    assert part(found, "weights") > (1_235_814_400 + 128256 * 2048) // 2 * 2


def test_packed_mxfp4_is_counted_as_it_is_computed() -> None:
    found = of(GPT_OSS, "trn2.48xlarge", tensor_parallel_size=8, max_model_len=4096, max_num_seqs=4)
    assert part(found, "weights") > 20e9 * 2 / 8


def test_raw_neuron_config_beats_the_plain_settings() -> None:
    raw = {"tp_degree": 64, "seq_len": 8192, "batch_size": 2, "kv_quant_config": {}, "enable_bucketing": False}
    found = of(LLAMA_70B, "trn2.48xlarge", tensor_parallel_size=32, max_model_len=128, neuron_config=raw)
    assert (found.shape.degree, found.shape.length, found.shape.sequences, found.shape.graphs) == (64, 8192, 2, 2)
    assert found.shape.cache_width == 1.0
    unread = of(LLAMA_70B, "trn2.48xlarge", neuron_config={"kv_cache_quant": True})
    assert unread.shape.cache_width == 2.0  # since SDK 2.28 it does not change the cache


def test_data_parallel_attention_keeps_more_weights_and_shares_the_sequences() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 64, "max_model_len": 4096, "max_num_seqs": 16}
    plain = of(LLAMA_70B, "trn2.48xlarge", **common)
    shared = of(LLAMA_70B, "trn2.48xlarge", neuron_config={"attention_dp_degree": 8}, **common)
    over_8 = 80 * 8192 * 128 * 2 * (64 // 8 + 1)  # for decode, beside the weights of prefill
    assert part(shared, "weights") - part(plain, "weights") == 2 * over_8
    # 8 ranks instead of 64: no head is replicated. Each way has 2 of the 16 sequences, and a spare one.
    assert part(shared, "KV cache") * 16 == part(plain, "KV cache") * 3
    kernel = {"attention_dp_degree": 8, "attn_block_tkg_nki_kernel_cascaded_attention": True}
    without_spare = of(LLAMA_70B, "trn2.48xlarge", neuron_config=kernel, **common)
    assert part(without_spare, "KV cache") * 8 == part(plain, "KV cache")


def test_the_kernel_of_quantized_mlps_pads_weights_and_repeats_scales() -> None:
    """832 columns of a rank become 896, and each of the outputs has 128 scales in float32."""
    common: dict[str, Any] = {"tensor_parallel_size": 64, "max_model_len": 2048, "max_num_seqs": 1}
    plain = of(LLAMA_405B, "trn2.48xlarge", quantization="fp8", **common)
    kernel = of(LLAMA_405B, "trn2.48xlarge", quantization="fp8", quantized_mlp_kernel_enabled=True, **common)
    layer = 3 * 16384 * (896 - 832) + 128 * 4 * (2 * 896 + 16384)
    assert part(kernel, "weights") - part(plain, "weights") == 126 * layer


@pytest.mark.parametrize(
    ("model", "changes", "tokens"),
    [
        (GPT_OSS, {}, 12 * 256 + 12 * 4096),  # a window of 128 takes 256; every second layer has it
        (LLAMA_8B, {"model_type": "mistral", "sliding_window": 1024}, 32 * 1024),
        (LLAMA_8B, {"model_type": "llama4", "attention_chunk_size": 1024}, 24 * 1024 + 8 * 4096),
        (LLAMA_8B, {"model_type": "qwen2", "sliding_window": 1024}, 32 * 4096),
    ],
)
def test_a_layer_with_a_window_keeps_the_window(model: str, changes: dict[str, Any], tokens: int) -> None:
    facts = facts_from({**MODELS[model]["config"], **changes}, model, False, None, MODELS[model]["total_size"])
    config = EndpointConfig(tensor_parallel_size=8, max_model_len=4096, max_num_seqs=4)
    found = estimate(facts, config, find("trn2.48xlarge", hosting=False))
    assert found is not None
    assert part(found, "KV cache") == 2 * facts.head_dim * tokens * 4 * 2


def test_context_parallel_attention_is_kept_twice() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 64, "max_model_len": 4096, "max_num_seqs": 1}
    plain = of(LLAMA_70B, "trn2.48xlarge", **common)
    twice = of(LLAMA_70B, "trn2.48xlarge", neuron_config={"cp_degree": 8}, **common)
    over_8 = 80 * 8192 * 128 * 2 * (64 // 8 + 1)  # query and output, key and value heads of one rank in 8
    assert part(twice, "weights") - part(plain, "weights") == 2 * over_8


@pytest.mark.parametrize(
    ("instance", "length", "scores"),
    [
        ("inf2.8xlarge", 3840, True),
        ("inf2.8xlarge", 4096, False),
        ("trn2.48xlarge", 3840, False),
        ("trn2.48xlarge", 3900, True),  # LNC 2: multiples of 256
    ],
)
def test_scores_are_kept_where_flash_attention_does_not_start_by_itself(
    instance: str, length: int, scores: bool
) -> None:
    """Sixteen heads of 3840 x 3840 scores take 0.9 GB, more than the measured scratchpad."""
    found = of(LLAMA_8B, instance, tensor_parallel_size=2, max_model_len=length, max_num_seqs=1)
    assert (part(found, "activations") > 0) is scores


def test_blocks_decide_the_cache_where_they_are_given() -> None:
    common: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 4096, "max_num_seqs": 8, "block_size": 32}
    blocks = of(LLAMA_8B, "inf2.24xlarge", enable_prefix_caching=True, num_gpu_blocks_override=512, **common)
    assert blocks.shape.cache_tokens == 512 * 32
    contiguous = of(LLAMA_8B, "inf2.24xlarge", enable_prefix_caching=False, num_gpu_blocks_override=512, **common)
    assert contiguous.shape.cache_tokens == 4096 * 8


def test_a_model_of_unknown_shape_is_judged_by_its_bytes_or_not_at_all() -> None:
    config = EndpointConfig(max_model_len=128, max_num_seqs=1, tensor_parallel_size=2)
    sized = estimate(facts_from({"model_type": "novel"}, "m", True, None, 20 * GIB), config, find("inf2.xlarge"))
    assert sized is not None
    assert part(sized, "weights") == 10 * GIB
    assert any("novel has no shape" in note for note in sized.notes)
    assert estimate(facts_from({"model_type": "novel"}, "m", True), config, find("inf2.xlarge")) is None


def test_a_model_with_fewer_parameters_than_its_shape_gives_is_scaled_down() -> None:
    """GPT-J has no gate: two thirds of the MLP that the shape counts."""
    shape: dict[str, Json] = {"hidden_size": 4096, "num_hidden_layers": 28, "num_attention_heads": 16}
    shape |= {"model_type": "gptj", "intermediate_size": 16384, "vocab_size": 50400}
    facts = facts_from(shape, "m", True, None, 12_101_574_144)
    found = estimate(facts, EndpointConfig(tensor_parallel_size=2, max_model_len=2048), find("inf2.xlarge"))
    assert found is not None
    assert part(found, "weights") == pytest.approx(12_101_574_144 / 2, rel=0.01)


def test_the_document_is_json_with_the_basis_of_each_number() -> None:
    document = of(LLAMA_405B, "trn2.48xlarge", tensor_parallel_size=64, max_model_len=2048, max_num_seqs=1).document()
    assert document["verdict"] == "fits"
    core = document["core"]
    assert isinstance(core, dict)
    parts = core["parts"]
    assert isinstance(parts, list)
    assert {part["basis"] for part in parts if isinstance(part, dict)} == {"computed", "measured", "assumed"}
    assert sum(part["gib"] for part in parts) == pytest.approx(core["total_gib"], abs=0.1)  # type: ignore[index, call-overload, misc]


SHAPES = st.fixed_dictionaries(
    {},
    optional={
        name: st.integers(0, 2**20)
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_experts")
    },
)


@settings(max_examples=100)
@given(
    SHAPES,
    st.none() | st.integers(1, 2**50),
    st.none() | st.integers(-1, 300),
    st.none() | st.integers(-1, 2**30),
    st.sampled_from(INSTANCES),
)
def test_no_shape_gives_a_traceback(
    config: dict[str, Any], size: int | None, degree: int | None, length: int | None, instance: Any
) -> None:
    facts = facts_from(config, "m", True, None, size)
    found = estimate(facts, EndpointConfig(tensor_parallel_size=degree, max_model_len=length), instance)
    assert found is None or found.document()["verdict"]


@pytest.mark.parametrize(
    ("heads", "kv", "degree", "expected"),
    [
        (32, 8, 8, Heads(32, 8, 1)),
        (32, 8, 2, Heads(32, 8, 4)),
        (32, 8, 32, Heads(32, 32, 1)),  # replicated: one on each rank
        (64, 8, 12, Heads(72, 72, 6)),  # neither divides: expanded to as many as the padded query heads
        (28, 4, 32, Heads(32, 32, 1)),
        (40, 8, 64, Heads(64, 64, 1)),
        (32, 32, 24, Heads(48, 48, 2)),  # multi-head attention is padded alike
        (16, 1, 4, Heads(16, 4, 1)),
    ],
)
def test_heads_are_padded_and_replicated_as_nxd_inference_does(
    heads: int, kv: int, degree: int, expected: Heads
) -> None:
    assert shard_heads(heads, kv, degree) == expected


def total(model: str, degree: int) -> int:
    rank = rank_weights(published(model), degree)
    return rank.attention + rank.mlp + rank.embeddings + rank.replicated


def test_by_hand_8b_over_8() -> None:
    """Per layer: q and o 4096 x 512 each, one KV head of 128 for k and v, gate, up and down 4096 x 1792."""
    layer = 2 * 4096 * 512 + 2 * 4096 * 128 + 3 * 4096 * 1792
    norms = (2 * 32 + 1) * 4096
    assert total(LLAMA_8B, 8) == 32 * layer + norms + 2 * 128256 * 512


def test_by_hand_405b_over_64_with_replicated_kv_heads() -> None:
    layer = 2 * 16384 * 256 + 2 * 16384 * 128 + 3 * 16384 * 832
    norms = (2 * 126 + 1) * 16384
    assert total(LLAMA_405B, 64) == 126 * layer + norms + 2 * 128256 * 256


@given(st.integers(1, 256), st.integers(1, 64), st.integers(1, 256))
def test_every_rank_has_the_same_number_of_heads(heads: int, kv: int, degree: int) -> None:
    found = shard_heads(heads, kv, degree)
    assert found.query % degree == 0
    assert found.kv_per_rank * degree >= min(kv, found.kv)
    assert found.kv_per_rank >= 1
