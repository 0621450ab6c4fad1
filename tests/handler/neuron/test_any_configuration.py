"""Any configuration gives a plan or errors; planning never raises."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.lines.line_registry import NAMES
from handler.neuron.neuron_config.keys import KEYS
from handler.neuron.planning.planner import make_plan
from handler.neuron.sampling_limits import sampling_limits
from tests.handler.neuron.neuron_plans import INF2, TRN1, TRN2, llama, starts

leaves = st.none() | st.booleans() | st.integers(-3, 5000) | st.floats() | st.text(max_size=12)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
numbers = st.none() | st.integers(-2, 300) | st.sampled_from([512, 2048, 4096, 10**15])
buckets = st.none() | st.lists(st.integers(-1, 5000), max_size=4).map(tuple)
words = st.none() | st.text(max_size=12)
neuron_keys = st.sampled_from([*KEYS, "global_top_k", "override-neuron-config", "text_neuron_config", "lora_ckpt_json"])
raw = st.dictionaries(neuron_keys | st.text(max_size=8), json_values, max_size=6)
additional = st.dictionaries(
    st.sampled_from(["override_neuron_config", "override-neuron-config", "neuron_config", "max_prompt_length"])
    | st.text(max_size=8),
    raw | json_values,
    max_size=3,
)
# As the loader gives them: of its type where vLLM's table has one, and anything for a name that it does not know.
engine_args = st.builds(
    lambda typed, others: {**others, **typed},
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(["max_num_batched_tokens", "data_parallel_size"], st.integers(-1, 2**31 - 1)),
            **dict.fromkeys(["device", "model"], st.text(max_size=8)),
            **dict.fromkeys(["additional_config", "speculative_config", "kv_transfer_config"], additional),
        },
    ),
    st.dictionaries(
        st.sampled_from(["override_neuron_config", "enable-lora"]) | st.text(max_size=8),
        additional | json_values,
        max_size=3,
    ),
)
environments = st.dictionaries(
    st.sampled_from(
        [
            "VLLM_NEURON_FRAMEWORK",
            "NEURON_RT_VISIBLE_CORES",
            "NEURON_LOGICAL_NC_CONFIG",
            "NEURON_RANK_ID",
            "DISABLE_NEURON_CUSTOM_SCHEDULER",
            "NEURON_ON_DEVICE_SAMPLING_DISABLED",
            "MASTER_ADDR",
        ]
    ),
    st.sampled_from(["", "0", "1", "2", "0-31", "²", "transformers-neuronx", "optimum-neuron"]) | st.text(max_size=8),
    max_size=4,
)
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "line": st.none() | st.sampled_from(NAMES) | st.text(max_size=8),
    "quantization": st.sampled_from([None, "int8", "fp8", "mxfp4", "neuron_quant", "", "é"]),
    "speculation": st.sampled_from([None, "eagle", "eagle3", "draft_model", "medusa", "", "x"]),
    "disaggregation": st.sampled_from([None, "prefill", "decode", "x"]),
    "dtype": st.sampled_from([None, "auto", "half", "bfloat16", "int4", ""]),
    "neuron_config": raw,
    "engine_args": engine_args,
    "neuron_env": environments,
    "text_neuron_config": st.none() | raw,
    "vision_neuron_config": st.none() | raw,
    "lora_modules": st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=2),
    "modules_to_not_convert": st.none() | st.lists(st.text(max_size=4), max_size=2).map(tuple),
    "lora_target_modules": st.none() | st.lists(st.text(max_size=4), max_size=2).map(tuple),
}
BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    int | None: numbers,
    bool | None: st.none() | st.booleans(),
    str | None: words,
    tuple[int, ...] | None: buckets,
}
HINTS = get_type_hints(EndpointConfig)
FIELDS = {
    name: CHOICES.get(name, BY_TYPE.get(hint)) for name, hint in HINTS.items() if name in CHOICES or hint in BY_TYPE
}
STRATEGIES = {name: strategy for name, strategy in FIELDS.items() if strategy is not None}
# A few settings at a time: more of them, and nearly every plan ends on the first error.
configurations = st.lists(st.sampled_from(sorted(STRATEGIES)), max_size=8, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: STRATEGIES[name] for name in names}).map(
        lambda chosen: EndpointConfig(**chosen)
    )
)
facts = st.sampled_from(
    [None, llama(), llama(heads=0, max_position_embeddings=None, torch_dtype=None, config={"attention_chunk_size": 64})]
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(configurations, facts, st.sampled_from([None, TRN1, TRN2, INF2]), st.none() | st.sampled_from(NAMES))
def test_there_is_always_an_outcome(config: EndpointConfig, model: Any, instance: Any, line: str | None) -> None:
    result = make_plan(config, model, instance, line=line)
    assert isinstance(result, PlanOutcome)
    assert (result.plan is None) is bool(result.errors)
    for finding in result.findings:
        assert finding.code
        assert finding.setting
        assert finding.fix
    if result.plan is not None:
        json.dumps(result.plan.document())
        assert all(isinstance(value, str) for value in result.plan.env.values())
        sampling_limits(result.plan)
        if result.plan.line == "nxdi-0.16":
            starts(result.plan)
