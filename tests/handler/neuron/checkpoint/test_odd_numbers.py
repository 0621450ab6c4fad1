"""Whatever numbers config.json holds, an examination ends with findings."""

from __future__ import annotations

import json
import sys
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json, json_object
from handler.neuron.checkpoint.file_findings import Loader, config_findings
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.checkpoint.model_layout import expected_tensors
from handler.neuron.memory.memory_estimate import estimate
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import TRN2

WEIGHTS: Final = sample_model.path()
CONFIG: Final = json_object((WEIGHTS / "config.json").read_bytes()) or {}
# Numbers of this model, of rotary embeddings, of mixtures of experts and of other lengths.
NAMES: Final = (
    *(name for name, value in CONFIG.items() if type(value) in (int, float)),
    *("num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window", "attention_chunk_size"),
    *("model_max_length", "max_seq_len", "seq_length", "n_positions"),
)
FACTORS: Final = ("factor", "original_max_position_embeddings", "rope_theta", "low_freq_factor")
ODD: Final = st.sampled_from(
    [float("inf"), float("-inf"), float("nan"), 1e308, -1e308, 5e-324, -1, 0, 1, 0.5, 2**40 - 1, 2**63, 10**400, True]
)
KINDS: Final = st.sampled_from(["linear", "dynamic", "yarn", "llama3", "longrope", "default"])
ROPES: Final = st.builds(
    lambda kind, numbers: {"rope_type": kind, **numbers}, KINDS, st.dictionaries(st.sampled_from(FACTORS), ODD)
)


def examine(changes: dict[str, Json]) -> None:
    config = json_object(json.dumps({**CONFIG, **changes})) or {}
    list(config_findings(config, Loader("0.16.0", 4, False, False, True)))
    expected_tensors({**config, "num_hidden_layers": 1})
    facts = facts_from(config, str(WEIGHTS), True, 3_000_000, 6_000_000, {"BF16": 6_000_000})
    assert facts.longest is None or 0 <= facts.longest < sys.maxsize
    for line in ("cpu", "nxdi-0.16", "native-0.29"):
        settings = EndpointConfig(model=str(WEIGHTS), line=line)
        instance = None if line == "cpu" else TRN2
        outcome = make_plan(settings, facts, instance, draft_model=facts)
        if outcome.plan is not None and instance is not None:
            estimate(facts, settings, instance, draft=facts)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), ODD, min_size=1, max_size=4), st.none() | ROPES, st.booleans())
def test_any_numbers_are_examined(numbers: dict[str, Json], rope: dict[str, Json] | None, nested: bool) -> None:
    changes = {**numbers, "rope_scaling": rope}
    examine({**changes, "text_config": {**CONFIG, **changes}} if nested else changes)


@pytest.mark.parametrize("factor", ["1e308", "Infinity", "NaN", "-1", "9" * 400], ids=lambda text: text[:8])
@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_any_factor_of_a_rotary_embedding(factor: str, kind: str) -> None:
    examine({"rope_scaling": {"rope_type": kind, "factor": json.loads(factor)}})
    examine({"rope_scaling": {"rope_type": kind, "factor": json.loads(factor)}, "max_position_embeddings": 2**40 - 1})


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 1e308, -1, 10**400], ids=["inf", "nan", "1e308", "-1", "10**400"]
)
@pytest.mark.parametrize("name", NAMES)
def test_each_number_by_itself(name: str, value: float) -> None:
    examine({name: value})
