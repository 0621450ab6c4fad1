"""The tokens that requests compute after padding: each line's own buckets, counted one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from handler.config.loading.config_loader import load
from handler.neuron.buckets.compiled_buckets import CompiledBuckets, compiled_buckets, planned_buckets
from handler.neuron.buckets.padding import DECODE, PREFILL, padded_in_all, padded_tokens
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.planning.planner import make_plan


def plan_of(line: str, instance: str = "ml.trn2.48xlarge", **settings: Any) -> EnginePlan:
    environ = {f"SM_VLLM_{name.upper()}": str(value) for name, value in settings.items()}
    config = load({"ENDPOINT_LINE": line, "SM_VLLM_TENSOR_PARALLEL_SIZE": "8", **environ}, model="m")
    outcome = make_plan(config, None, find(instance))
    assert outcome.plan is not None, outcome.errors
    return outcome.plan


def test_the_buckets_of_nxd_inference() -> None:
    found = compiled_buckets(plan_of("nxdi-0.16", max_model_len=1500, max_num_seqs=4))
    # NxD Inference rounds the logarithm of the length, so 1024 is not there.
    assert found == CompiledBuckets((128, 256, 512, 1024, 1500), (128, 256, 512, 1024, 1500), (4,), exclusive=True) or (
        found == CompiledBuckets((128, 256, 512, 1500), (128, 256, 512, 1500), (4,), exclusive=True)
    )


def test_the_buckets_of_the_native_plugin() -> None:
    found = compiled_buckets(plan_of("native-0.29", max_model_len=1024, max_num_seqs=6))
    assert found == CompiledBuckets((128, 256, 512, 1024), (1024,), (1, 2, 4, 6))
    found = compiled_buckets(plan_of("native-0.29", max_model_len=32768, max_num_seqs=2))
    assert found == CompiledBuckets((2048,), (32768,), (1, 2), segmented=True)


def test_plans_without_lists_of_buckets() -> None:
    assert compiled_buckets(EnginePlan("cpu", {"max_model_len": 1024, "max_num_seqs": 4})) is None
    cached = plan_of("nxdi-0.16", max_model_len=1024, enable_prefix_caching="true", block_size=32)
    assert compiled_buckets(cached) is None


def test_an_input_of_nxd_inference_is_shorter_than_its_bucket() -> None:
    exclusive, inclusive = (CompiledBuckets((128, 256), (128, 256), (1,), exclusive=kind) for kind in (True, False))
    assert [exclusive.prefill_tokens(length) for length in (127, 128, 256)] == [128, 256, 256]
    assert [inclusive.prefill_tokens(length) for length in (127, 128, 129)] == [128, 128, 256]


def test_segments_are_computed_whole() -> None:
    segmented = CompiledBuckets((512,), (4096,), (1,), segmented=True)
    (prefill,) = padded_tokens(segmented, 1025, 1)
    assert (prefill.bucket, prefill.asked, prefill.computed) == (512, 1025, 1536)


@pytest.mark.parametrize("seed", range(50))
def test_the_sums_are_those_of_single_steps(seed: int) -> None:
    draw = random.Random(seed)
    sizes = tuple(sorted(draw.sample(range(8, 200), 4)))
    buckets = CompiledBuckets(sizes, sizes, (1,), exclusive=bool(seed % 2))
    prompt = draw.randint(1, sizes[-1] - 1)
    output = draw.randint(1, sizes[-1] - prompt)
    steps = [prompt + made for made in range(1, output)]
    found = list(padded_tokens(buckets, prompt, output))
    decode = [one for one in found if one.phase == DECODE]
    assert sum(one.asked for one in decode) == sum(steps)
    assert sum(one.computed for one in decode) == sum(buckets.decode_tokens(step) for step in steps)
    assert found[0].phase == PREFILL
    assert found[0].computed == buckets.prefill_tokens(prompt)
    both = padded_in_all(buckets, {prompt: 1}, dict.fromkeys(steps, 1))
    assert [one.computed for one in both] == [found[0].computed, sum(one.computed for one in decode)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, CompiledBuckets((128, 256, 512, 1024), (1024,), (1, 2, 4))),
        (
            {"ENDPOINT_INSTANCE": "ml.inf2.xlarge"},
            CompiledBuckets((128, 256, 512, 1024), (128, 256, 512, 1024), (4,), exclusive=True),
        ),
    ],
)
def test_the_cpu_counts_by_the_planned_neuron_line(environ: dict[str, str], expected: CompiledBuckets) -> None:
    config = load({"ENDPOINT_LINE": "cpu", **environ}, model="m")
    assert planned_buckets(EnginePlan("cpu", {}), config, 1024, 4) == expected
