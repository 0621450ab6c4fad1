from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.memory.rank_weights import stored_parameters
from tests.handler.neuron.published_models import GPT_OSS, MODELS, SCOUT, published


@pytest.mark.parametrize(
    "name",
    [name for name, model in MODELS.items() if model["total_size"] and name != SCOUT and "gpt-oss" not in name],
)
def test_the_shape_gives_the_published_number_of_parameters(name: str) -> None:
    """To within the biases and the query and key norms, which the shape leaves out."""
    facts = published(name)
    assert facts.weight_bytes is not None
    assert 0 <= facts.weight_bytes / 2 - stored_parameters(facts) < 500_000


def test_a_multimodal_model_is_its_language_model_and_keeps_its_own_type() -> None:
    facts = published(SCOUT)
    assert (facts.model_type, facts.hidden_size, facts.layers, facts.heads) == ("llama4", 5120, 48, 40)
    assert (facts.experts, facts.experts_per_token, facts.expert_intermediate_size) == (16, 1, 8192)
    assert facts.weight_bytes is not None
    assert 0.8e9 < facts.weight_bytes / 2 - stored_parameters(facts) < 1e9  # the vision tower


def test_experts_have_a_width_of_their_own() -> None:
    facts = published("Qwen/Qwen3-30B-A3B-Instruct-2507")
    assert (facts.experts, facts.expert_intermediate_size, facts.intermediate_size) == (128, 768, 6144)


def test_gpt_oss_is_counted_by_its_shape_and_not_by_its_packed_bytes() -> None:
    assert 20e9 < stored_parameters(published(GPT_OSS)) < 21.5e9
    assert 116e9 < stored_parameters(published("openai/gpt-oss-120b")) < 117.5e9  # 117 B by its model card


def test_missing_numbers_follow_from_others() -> None:
    facts = facts_from({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}, "m", True)
    assert (facts.kv_heads, facts.head_dim, facts.tied_embeddings, facts.torch_dtype) == (4, 16, False, None)


def test_other_names_for_the_same_numbers() -> None:
    facts = facts_from(
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "dtype": "float16"}, "m", True
    )
    assert (facts.hidden_size, facts.layers, facts.kv_heads, facts.torch_dtype) == (768, 12, 12, "float16")


def test_gemma_ties_its_embeddings_by_default() -> None:
    assert facts_from({"model_type": "gemma3"}, "m", True).tied_embeddings
    assert not facts_from({"model_type": "gemma3", "tie_word_embeddings": False}, "m", True).tied_embeddings


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["model_type", "text_config", "hidden_size", "num_attention_heads", "head_dim", "torch_dtype", "architectures"]
)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES))
def test_no_config_gives_a_traceback(config: dict[str, object]) -> None:
    facts = facts_from(config, "m", True)  # type: ignore[arg-type]
    assert facts.model_type
    assert facts.heads >= 0
