"""Writes tests/recipes/rank_bytes.json: `NXDI_SOURCES=dir python -m tests.nxdi_sources.memory_facts`.

It has each recipe of this line, 50 random configurations, and models and features that these do not have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handler.neuron.engine_plan import EnginePlan
from handler.neuron.planning import planner
from tests.nxdi_sources.random_settings import random_settings
from tests.nxdi_sources.rank_bytes import rank_bytes
from tests.nxdi_sources.sources import COMMITS, use_sources
from tests.recipes.golden_plans import LOCAL, PLANS, published_models
from tests.recipes.memory_case import RANK_BYTES, MemoryCase

RANDOM = 50
LINE = "nxdi-0.16"
LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"
FURTHER: dict[str, tuple[str, int, dict[str, Any]]] = {
    "context parallel": (LLAMA_8B, 8, {"cp_degree": 4}),
    "attention data parallel": (LLAMA_70B, 32, {"attention_dp_degree": 4, "is_continuous_batching": True}),
    "context and attention data parallel": (LLAMA_8B, 32, {"attention_dp_degree": 2, "cp_degree": 4}),
    "flash decoding": (LLAMA_70B, 64, {"flash_decoding_enabled": True}),
    "quantized activations": (LLAMA_8B, 8, {"activation_quantization_type": "dynamic"}),
    "gpt-oss-20b": ("openai/gpt-oss-20b", 8, {}),
    "gpt-oss-120b": ("openai/gpt-oss-120b", 16, {}),
    "Qwen3 with experts": ("Qwen/Qwen3-30B-A3B-Instruct-2507", 8, {}),
    "Qwen3-32B": ("Qwen/Qwen3-32B", 8, {}),
}


def plan_of(case: MemoryCase) -> EnginePlan | None:
    """None if we find an error."""
    if case.settings is None:
        return EnginePlan(**json.loads((PLANS / f"{case.name}.json").read_text(encoding="utf-8")))
    return planner.make_plan(case.config, case.facts, case.type, line=LINE, draft_model=case.draft).plan


def directory_of(plan: EnginePlan) -> Path:
    """The directory of the model, in the working directory of `published_models`."""
    model: str = plan.engine_args["model"]
    return Path(LOCAL.get(model, model))


def cases() -> Iterator[MemoryCase]:
    for path in sorted(PLANS.glob("*.json")):
        if json.loads(path.read_text(encoding="utf-8"))["line"] == LINE:
            yield MemoryCase(path.stem, f"ml.{path.stem.rpartition('-')[2]}")
    base = {"max_model_len": 8192, "max_num_seqs": 8, "enable_prefix_caching": False, "dtype": "bfloat16"}
    for name, (model, degree, keys) in FURTHER.items():
        settings = {**base, "tensor_parallel_size": degree, "neuron_config": keys}
        yield MemoryCase(name, "ml.trn2.48xlarge", model, settings)
    found = seed = 0
    while found < RANDOM:
        model, instance, settings = random_settings(f"memory {seed}")
        case = MemoryCase(f"random {seed}", instance, model, settings)
        seed += 1
        if plan_of(case) is not None:
            found += 1
            yield case


def main() -> None:
    use_sources(os.environ["NXDI_SOURCES"])
    rows: list[str] = []
    with published_models():
        for case in cases():
            plan = plan_of(case)
            assert plan is not None, case.name
            row = {"case": case.document(), "bytes": rank_bytes(plan, directory_of(plan))}
            rows.append(json.dumps(row))
            print(rows[-1])
    text = ",\n    ".join(rows)
    RANK_BYTES.write_text(f'{{\n  "commits": {json.dumps(COMMITS)},\n  "cases": [\n    {text}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
