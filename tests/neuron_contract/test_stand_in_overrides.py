"""From engine arguments and additional_config to NeuronConfig's arguments, and what is refused on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.nxdi.overrides import check_multimodal, neuron_arguments

PLAIN = EngineShape("/model", tensor_parallel_size=2, max_model_len=1024, max_num_seqs=4, block_size=1024)
BLOCKS = EngineShape("/model", max_model_len=1024, max_num_seqs=4, block_size=32, prefix_caching=True)


def over(shape: EngineShape = PLAIN, **override: object) -> dict[str, object]:
    return neuron_arguments(shape, {"override_neuron_config": override})


def with_override(shape: EngineShape, blocks: int) -> EngineShape:
    return EngineShape(
        shape.model,
        max_model_len=shape.max_model_len,
        max_num_seqs=shape.max_num_seqs,
        block_size=shape.block_size,
        prefix_caching=shape.prefix_caching,
        num_gpu_blocks_override=blocks + 1,  # as the platform leaves it
    )


def test_defaults_that_the_plugin_fills_in() -> None:
    assert neuron_arguments(PLAIN, {}) == {
        "tp_degree": 2,
        "ctx_batch_size": 1,
        "batch_size": 4,
        "max_context_length": 1024,
        "seq_len": 1024,
        "enable_bucketing": True,
        "is_continuous_batching": True,
        "quantized": False,
        "torch_dtype": "bfloat16",
        "padding_side": "right",
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
        "lora_config": None,
        "pa_num_blocks": 4,
        "pa_block_size": 1024,
        "is_block_kv_layout": False,
        "is_prefix_caching": False,
    }


def test_one_sequence_is_no_continuous_batching() -> None:
    one = EngineShape("/model", max_num_seqs=1)
    assert neuron_arguments(one, {})["is_continuous_batching"] is False


def test_prefix_caching_keeps_the_cache_in_blocks() -> None:
    made = over(BLOCKS)
    assert made["is_block_kv_layout"]
    assert made["is_prefix_caching"]
    assert (made["pa_num_blocks"], made["pa_block_size"]) == (128, 32)


def test_an_override_wins() -> None:
    assert over(async_mode=True, tp_degree=8)["tp_degree"] == 8


def test_hyphens_are_ignored_in_silence() -> None:
    assert neuron_arguments(PLAIN, {"override-neuron-config": {"tp_degree": 8}})["tp_degree"] == 2


def test_null_switches_on_device_sampling_off() -> None:
    assert over(on_device_sampling_config=None)["on_device_sampling_config"] is None


def test_quantized_fills_in_type_and_dtype() -> None:
    made = over(quantized=True, quantized_checkpoints_path="/q")
    assert (made["quantization_type"], made["quantization_dtype"]) == ("per_tensor_symmetric", "int8")


def test_a_length_that_is_no_multiple_of_the_block_fails_its_own_check() -> None:
    odd = EngineShape("/model", max_model_len=1000, max_num_seqs=4, block_size=32, prefix_caching=True)
    with pytest.raises(AssertionError, match="At least 128 blocks are required, but only 124"):
        over(odd)


def test_as_many_blocks_as_all_sequences_need() -> None:
    over(with_override(BLOCKS, 128))
    with pytest.raises(AssertionError, match="At least 128 blocks"):
        over(with_override(BLOCKS, 127))


def test_contiguous_needs_a_block_for_each_sequence() -> None:
    over(with_override(PLAIN, 4))
    with pytest.raises(AssertionError, match="At least 4 blocks"):
        over(with_override(PLAIN, 3))


def test_pa_num_blocks_must_equal_the_override() -> None:
    assert over(with_override(BLOCKS, 128), pa_num_blocks=128)["pa_num_blocks"] == 129
    with pytest.raises(ValueError, match="must match"):
        over(with_override(BLOCKS, 130), pa_num_blocks=128)
    with pytest.raises(ValueError, match="needs num_gpu_blocks_override"):
        over(BLOCKS, pa_num_blocks=128)


def test_chunked_prefill_needs_its_configuration() -> None:
    chunked = EngineShape("/model", block_size=32, chunked_prefill=True)
    with pytest.raises(AssertionError):
        over(chunked)
    assert over(chunked, chunked_prefill_config={"max_num_seqs": 4})["is_block_kv_layout"]


def test_max_prompt_length_must_equal_max_context_length() -> None:
    asked = {"max_prompt_length": 512, "override_neuron_config": {"max_context_length": 512}}
    assert neuron_arguments(PLAIN, asked)["max_context_length"] == 512
    with pytest.raises(ValueError, match="max_prompt_length"):
        neuron_arguments(PLAIN, {"max_prompt_length": 512})


def test_lora_without_an_override_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        neuron_arguments(EngineShape("/model", lora=True), {})


def test_adapters_must_be_local(tmp_path: Path) -> None:
    listing = tmp_path / "adapters.json"
    named = {"lora-ckpt-dir": str(tmp_path), "lora-ckpt-paths": {"one": "one"}}
    listing.write_text(json.dumps(named))
    shape = EngineShape("/model", lora=True)
    with pytest.raises(KeyError, match="lora-ckpt-paths-cpu"):
        over(shape, lora_ckpt_json=str(listing), target_modules=["q_proj"])
    listing.write_text(json.dumps({**named, "lora-ckpt-paths-cpu": {"one": "one"}}))
    with pytest.raises(FileNotFoundError, match="adapter one"):
        over(shape, lora_ckpt_json=str(listing), target_modules=["q_proj"])
    (tmp_path / "one").mkdir()
    assert over(shape, lora_ckpt_json=str(listing), target_modules=["q_proj"])["lora_config"]


def test_a_draft_makes_a_fused_configuration() -> None:
    shape = EngineShape("/model", speculation={"method": "draft_model", "num_speculative_tokens": 4, "model": "/d"})
    made = over(shape)
    assert (made["enable_fused_speculation"], made["speculation_length"]) == (True, 4)
    assert "enable_eagle_speculation" not in made
    eagle = EngineShape("/model", speculation={"method": "eagle", "num_speculative_tokens": 4, "model": "/d"})
    assert over(eagle)["enable_eagle_speculation"]


def test_a_multimodal_override_has_two_keys_only() -> None:
    check_multimodal({"text_neuron_config": {}, "vision_neuron_config": {}})
    shape = EngineShape("/model", hf_config={"architectures": ["Llama4ForConditionalGeneration"]})
    with pytest.raises(AssertionError, match="only"):
        over(shape, tp_degree=8)
