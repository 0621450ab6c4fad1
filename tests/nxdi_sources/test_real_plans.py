"""Our plans and checks, and what the plugin's own functions and NxD Inference's own classes say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.restore.model_paths import ModelPaths
from handler.config.endpoint_config import EndpointConfig
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.lines.lora import adapter_document
from handler.neuron.planning import planner
from tests.model_packaging.test_nxdi_refusals import LLAMA, TAKEN, checked
from tests.nxdi_sources.memory_facts import directory_of, plan_of
from tests.nxdi_sources.random_settings import random_settings
from tests.recipes.golden_plans import PLANS, published_models
from tests.recipes.memory_case import MemoryCase, measured

RECIPES = [path for path in sorted(PLANS.glob("*.json")) if json.loads(path.read_text())["line"] == "nxdi-0.16"]
GOOD = 200


@pytest.fixture(scope="module", autouse=True)
def models() -> Iterator[None]:
    """The published configurations by their names, in the working directory."""
    with published_models():
        yield


def build(plan: EnginePlan, model: Path) -> Any:
    from tests.nxdi_sources.real_classes import real_application

    return real_application(plan, model)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_plan_is_accepted(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert build(EnginePlan(**document), Path(document["engine_args"]["model"]))


@pytest.mark.parametrize("name", [name for name in TAKEN if "adapters" not in name])
def test_what_we_take_is_accepted(name: str, tmp_path: Path) -> None:
    plan = checked(tmp_path / "model", TAKEN[name]).plan
    assert plan is not None
    assert build(plan, tmp_path / "model")


@pytest.mark.parametrize("seed", range(GOOD))
def test_a_random_plan_that_we_find_good_is_accepted(seed: int) -> None:
    attempt = 0
    while True:
        model, instance, settings = random_settings(f"{seed}.{attempt}")
        facts = read_facts(model)
        config = EndpointConfig(model=model, **settings)
        outcome = planner.make_plan(config, facts, find(instance), line="nxdi-0.16")
        if outcome.plan is not None:
            break
        attempt += 1
    assert build(outcome.plan, Path(model)), settings


def test_lora_is_accepted_and_can_be_restored(tmp_path: Path) -> None:
    adapters = {name: tmp_path / name for name in ("a", "b")}
    for adapter in adapters.values():
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(json.dumps({"r": 8, "target_modules": ["q_proj"]}))
    modules = {name: str(path) for name, path in adapters.items()}
    listing = tmp_path / "adapters.json"
    config = EndpointConfig(lora_modules=modules, max_loras=1)
    listing.write_text(json.dumps(adapter_document(config)))
    environ = {
        "ENDPOINT_LORA_MODULES": json.dumps(modules),
        "ENDPOINT_LORA_TARGET_MODULES": "q_proj",
        "ENDPOINT_KV_CACHE_QUANT": "true",
        "SM_VLLM_MAX_LORAS": "1",
        "SM_VLLM_MAX_CPU_LORAS": "2",
        "SM_VLLM_ADDITIONAL_CONFIG": json.dumps({"override_neuron_config": {"lora_ckpt_json": str(listing)}}),
    }
    plan = checked(tmp_path / "model", environ, LLAMA).plan
    assert plan is not None
    application = build(plan, tmp_path / "model")
    lora = application.neuron_config.lora_config
    assert (lora.max_loras, list(lora.lora_ckpt_paths), list(lora.lora_ckpt_paths_cpu)) == (1, ["a"], ["a", "b"])
    saved = tmp_path / "saved"
    application.config.save(str(saved))
    with pytest.raises((ValueError, AssertionError)):
        type(application)(str(saved))
    ModelPaths(model=str(tmp_path / "model")).rewrite(saved, ["neuron_config.json"], tmp_path / "new")
    again = type(application)(str(saved)).neuron_config
    assert list(again.lora_config.lora_ckpt_paths_cpu) == ["a", "b"]
    assert again.kv_quant_config.quant_dtype == application.neuron_config.kv_quant_config.quant_dtype


MEASURED = measured()


@pytest.mark.parametrize(("case", "sizes"), MEASURED, ids=[case.name for case, _ in MEASURED])
def test_the_recorded_memory_is_that_of_the_modules(case: MemoryCase, sizes: dict[str, int]) -> None:
    from tests.nxdi_sources.rank_bytes import rank_bytes

    plan = plan_of(case)
    assert plan is not None
    assert rank_bytes(plan, directory_of(plan)) == sizes
