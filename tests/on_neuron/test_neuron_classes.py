"""Our rules and plans against NxD Inference's own classes: needs the package, not a device."""

from __future__ import annotations

import copy
import importlib.util
import json
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
        # `construct` would hide a class that cannot be imported or built.
        assert importlib.import_module(MODULE).NeuronConfig(**copy.deepcopy(section))


def test_every_key_that_we_know_is_the_class_s() -> None:
    import inspect

    config = importlib.import_module(MODULE).NeuronConfig
    known = set(vars(config())) | set(inspect.signature(config.__init__).parameters)
    assert set(KEYS) - known == set(), "keys that this version of NxD Inference no longer has"
