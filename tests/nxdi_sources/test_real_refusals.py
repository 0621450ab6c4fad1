"""For each rule of ours that restates one of the sources: a configuration that breaks it, which they refuse too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handler.neuron.engine_plan import EnginePlan
from handler.neuron.planning import planner
from tests.handler.neuron.neuron_config.test_neuron_config_rules import BREAKS
from tests.handler.neuron.neuron_plans import llama, outcome
from tests.model_packaging.test_nxdi_refusals import EXPERTS, LLAMA, REFUSED, REFUSED_OF_EXPERTS, checked
from tests.nxdi_sources.rank_bytes import rank_bytes

TRACED = "the graph's trace raises it, and nothing is traced here"
PARSER = "vLLM's own parser raises it, before the plugin has a say"
# Why a refusal cannot be seen here, by the code of the finding or the name of the case.
UNSEEN = {
    "sequence-parallel-lengths": TRACED,
    "qkv-kernel-weights": TRACED,
    "fused-residual": TRACED,
    "an activation of the router": TRACED,
    "value-of-another-version": PARSER,
    "kv-cache-dtype": "the plugin does not read it, which is our reason to reject it",
    "unknown-neuron-key": "the plugin does not read it, which is our reason to reject it",
    "too-many-cores": "the runtime raises it on a device",
    "too-few-loras": "we make no plan with it; NxD Inference raises it of its LoRA configuration",
}
ERRORS = (
    ValueError,
    AssertionError,
    TypeError,
    KeyError,
    RuntimeError,
    IndexError,
    AttributeError,
    NotImplementedError,
)


@pytest.fixture(autouse=True)
def without_our_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "CHECKS", ())


def refused(plan: EnginePlan | None, model: Path) -> None:
    assert plan is not None
    with pytest.raises(ERRORS):
        rank_bytes(plan, model)


@pytest.mark.parametrize("code", BREAKS)
def test_a_broken_rule_of_the_class_is_refused(code: str, tmp_path: Path) -> None:
    _, (settings, raw) = BREAKS[code]
    if code in UNSEEN:
        pytest.skip(UNSEEN[code])
    config = {**LLAMA, "attention_chunk_size": 8192}
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = llama(config={"attention_chunk_size": 8192})
    plan = outcome(**{"line": "nxdi-0.16", "facts": facts, "neuron_config": raw, **settings}).plan
    refused(plan, tmp_path)


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_OF_EXPERTS])
def test_a_broken_rule_of_the_models_and_the_plugin_is_refused(name: str, tmp_path: Path) -> None:
    environ, code, _ = {**REFUSED, **REFUSED_OF_EXPERTS}[name]
    if reason := UNSEEN.get(code) or UNSEEN.get(name):
        pytest.skip(reason)
    found = checked(tmp_path / "model", environ, EXPERTS if name in REFUSED_OF_EXPERTS else LLAMA)
    if found.plan is None:  # `check` builds the real NeuronConfig where it is installed.
        assert "neuron-config-raises" in {one.code for one in found.findings}
        return
    refused(found.plan, tmp_path / "model")
