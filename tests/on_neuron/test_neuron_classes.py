"""Our rules and plans against NxD Inference's own classes: needs the package, not a device."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from pathlib import Path

import pytest

from handler.neuron.engine_plan import EnginePlan
from handler.neuron.neuron_config.keys import KEYS
from handler.neuron.neuron_config.real_class import MODULE

PLANS = sorted((Path(__file__).parents[1] / "recipes" / "plans").glob("*.json"))
INSTALLED = importlib.util.find_spec(MODULE.partition(".")[0]) is not None

pytestmark = pytest.mark.skipif(not INSTALLED, reason="neuronx-distributed-inference is not installed here")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_real_class_takes_a_recipe_s_plan(path: Path) -> None:
    plan = EnginePlan(**json.loads(path.read_text(encoding="utf-8")))
    if not plan.line.startswith("nxdi"):
        pytest.skip(f"{plan.line} has no NxD Inference")
    additional = plan.engine_args.get("additional_config", {})
    assert isinstance(additional, dict)
    override = additional.get("override_neuron_config", {})
    assert isinstance(override, dict)
    sections = [value for value in override.values() if isinstance(value, dict) and "tp_degree" in value] or [override]
    for section in sections:
        # `construct` would hide a class that cannot be imported or built. The plugin itself adds vLLM's lengths.
        whole = {"seq_len": plan.engine_args["max_model_len"], **copy.deepcopy(section)}
        assert importlib.import_module(MODULE).NeuronConfig(**whole)


def test_every_key_that_we_know_is_read_by_the_package() -> None:
    """Keys of experts, routers and vision models belong to further classes, each of which reads its own."""
    package = Path(importlib.import_module(MODULE).__file__ or "").parents[1]
    words: set[str] = set()
    for file in package.rglob("*.py"):
        words |= set(re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace")))
    assert set(KEYS) - words == set(), "keys that this version of NxD Inference no longer has"
