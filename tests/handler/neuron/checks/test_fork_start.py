"""What vLLM 0.9.1's own Neuron backend would end of, or ignore, is a finding with its setting."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from handler.neuron.length_limits import length_limits
from tests.handler.neuron.neuron_plans import INF2, found, llama, outcome

TNX, NXD = "fork-0.9.1-tnx", "fork-0.9.1"
PRODUCER = {"disaggregation": "decode", "engine_args": {"kv_transfer_config": {"kv_role": "kv_producer"}}}


@pytest.mark.parametrize(
    ("line", "code", "settings", "setting"),
    [
        (TNX, "not-on-fork", {"structured_outputs": True}, "structured_outputs"),
        (NXD, "not-on-fork", {"structured_outputs": True}, "structured_outputs"),
        (NXD, "not-on-fork", {"engine_args": {"num_scheduler_steps": 8}}, "num_scheduler_steps"),
        (NXD, "not-on-fork", {"engine_args": {"data_parallel_size": 2}}, "data_parallel_size"),
        (TNX, "not-on-fork", {"engine_args": {"task": "embed"}}, "task"),
        (TNX, "not-on-fork", {"engine_args": {"enable_sleep_mode": True}}, "enable_sleep_mode"),
        (TNX, "not-on-fork", {"engine_args": {"pipeline_parallel_size": 2}}, "pipeline_parallel_size"),
        (TNX, "not-on-fork", {"engine_args": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype"),
        (NXD, "kv-cache-dtype", {"engine_args": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype"),
        (TNX, "token-budget", {"engine_args": {"max_num_batched_tokens": 2048}}, "max_num_batched_tokens"),
        (NXD, "token-budget", {"engine_args": {"max_num_batched_tokens": 2048}}, "max_num_batched_tokens"),
        (NXD, "value-of-another-version", {"lora_modules": {"a": "/a"}, "max_lora_rank": 17}, "max_lora_rank"),
        (NXD, "value-of-another-version", {"engine_args": {"load_format": "safetensor"}}, "load_format"),
        (TNX, "value-of-another-version", {"engine_args": {"guided_decoding_backend": "x"}}, "guided_decoding_backend"),
        (NXD, "memory-share", {"engine_args": {"gpu_memory_utilization": 90}}, "gpu_memory_utilization"),
        (TNX, "swap-space", {"engine_args": {"swap_space": 1000}, "instance": INF2}, "swap_space"),
        (TNX, "block-count", {"num_gpu_blocks_override": 8}, "num_gpu_blocks_override"),
        (NXD, "conflicting-settings", PRODUCER, "kv_transfer_config.kv_role"),
        (TNX, "unsupported-by-line", {"enable_prefix_caching": True}, "enable_prefix_caching"),
        (TNX, "unsupported-by-line", {"enable_chunked_prefill": True}, "enable_chunked_prefill"),
        (TNX, "unsupported-by-line", {"enable_lora": True}, "enable_lora"),
    ],
)
def test_what_the_backend_does_not_have(line: str, code: str, settings: dict[str, Any], setting: str) -> None:
    result = outcome(line, **settings)
    finding = found(result, code)
    assert (finding.severity, finding.setting) == (Severity.ERROR, setting)
    assert result.plan is None


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        *((TNX, Severity.ERROR), (NXD, Severity.ERROR), ("optimum", Severity.ERROR), ("nxdi-0.16", Severity.WARNING)),
        ("cpu", Severity.ERROR),
    ],
)
@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 2049),
        ({"rope_type": "llama3", "factor": 8.0}, 2049),
        ({"type": "linear", "factor": 4.0}, 8193),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, 4097),
    ],
)
def test_a_length_that_the_model_was_not_trained_for(
    line: str, severity: Severity, rope: dict[str, Any] | None, length: int
) -> None:
    facts = llama(max_position_embeddings=2048, config={"rope_scaling": rope} if rope else {})
    finding = found(outcome(line, facts=facts, max_model_len=length), "length-beyond-model")
    assert (finding.severity, finding.setting) == (severity, "max_model_len")
    if severity is Severity.ERROR:
        codes = [one.code for one in outcome(line, facts=facts, max_model_len=length - 1).findings]
        assert "length-beyond-model" not in codes


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 8192),
        (
            {"rope_parameters": {"full": {"rope_type": "linear", "factor": 2.0}, "sliding": {"rope_type": "default"}}},
            4096,
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 2048),
        ({"model_max_length": 3000}, 3000),
    ],
)
def test_the_longest_context_is_vllms(config: dict[str, Any], length: int) -> None:
    facts = llama(max_position_embeddings=2048, config=config)
    for more, refused in ((0, False), (1, True)):
        codes = [finding.code for finding in outcome("cpu", facts=facts, max_model_len=length + more).findings]
        assert ("length-beyond-model" in codes) is refused


@pytest.mark.parametrize(("value", "severity"), [("0", Severity.ERROR), ("1", Severity.WARNING)])
def test_the_variable_for_a_longer_context_counts_by_its_value(value: str, severity: Severity) -> None:
    settings: dict[str, Any] = {"max_model_len": 4096, "neuron_env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": value}}
    result = outcome("cpu", facts=llama(max_position_embeddings=2048), **settings)
    assert found(result, "length-beyond-model").severity is severity


@pytest.mark.parametrize("framework", [{}, {"neuron_env": {"VLLM_NEURON_FRAMEWORK": "transformers-neuronx"}}])
def test_the_framework_is_not_named_to_a_backend_that_would_end_of_it(framework: dict[str, Any]) -> None:
    plan = outcome(TNX, num_gpu_blocks_override=33, **framework).plan
    assert plan is not None
    assert (plan.line, "VLLM_NEURON_FRAMEWORK" in plan.env) == (TNX, False)
    assert outcome(NXD, **framework).plan == outcome(TNX if framework else NXD, **framework).plan


def test_no_prompt_is_longer_than_the_largest_bucket() -> None:
    plan = outcome(TNX, max_model_len=2048, context_encoding_buckets=(128, 1024)).plan
    assert plan is not None
    assert length_limits(plan).prompt == 1024
