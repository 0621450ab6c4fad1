from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from handler.config.finding import Severity
from handler.config.value_source import Origin
from handler.neuron.hardware.instance_catalogue import find_for_plan, unusual_degree
from handler.neuron.memory.memory_estimate import Verdict, estimate
from handler.neuron.memory.memory_findings import memory_findings
from tests.recipes.recipe_files import FILES, RECIPES, config_of, draft_of, facts_of

# What issue and README promise, as (part of the file's name, instance).
PROMISED = [
    ("llama-3.1-8b", "inf2.24xlarge"),
    ("llama-3.1-8b", "trn1.32xlarge"),
    ("llama-3.3-70b", "trn1.32xlarge"),
    ("llama-3.3-70b", "trn2.48xlarge"),
    ("llama-3.1-405b", "trn2.48xlarge"),
    ("llama-3.1-405b-fused-speculation", "trn2.48xlarge"),
    ("llama-3.1-405b-eagle", "trn2.48xlarge"),
    ("llama-3.1-405b-fp8", "trn2.48xlarge"),
    ("llama-4-scout", "trn2.48xlarge"),
    ("qwen2.5-7b", "inf2.24xlarge"),
    ("qwen2.5-32b", "trn1.32xlarge"),
    ("qwen3-8b", "trn1.32xlarge"),
    ("qwen3-32b", "trn1.32xlarge"),
    ("mixtral-8x7b", "trn1.32xlarge"),
    ("gpt-oss-20b", "trn2.48xlarge"),
    ("gpt-oss-120b", "trn2.48xlarge"),
    ("llama-3.1-8b", "trn2.48xlarge"),
    ("llama-3.3-70b-native", "trn2.48xlarge"),
    ("llama-3.3-70b-eagle3", "trn2.48xlarge"),
    ("llama-3.1-405b-native", "trn2.48xlarge"),
    ("qwen3-8b", "trn2.48xlarge"),
    ("qwen3-32b", "trn2.48xlarge"),
    ("qwen3-vl-32b", "trn2.48xlarge"),
    ("qwen3-32b-prefill", "trn2.48xlarge"),
    ("qwen3-32b-decode", "trn2.48xlarge"),
    ("llama-3.1-8b", "trn2.3xlarge"),
    ("gpt-oss-120b", "trn3.48xlarge"),
]
every_recipe = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_every_promised_recipe_is_there_and_no_other() -> None:
    assert {path.stem for path in FILES} == {f"{model}-{instance}" for model, instance in PROMISED}


@every_recipe
def test_every_key_arrives_in_the_configuration(path: Path) -> None:
    config = config_of(path)
    for key in yaml.safe_load(path.read_text(encoding="utf-8")):
        if key not in {"neuron_config", "neuron_env", "engine_args"}:
            assert config.source(key).origin is Origin.DOCUMENT, key
        assert getattr(config, key) not in (None, {}, ()), key


@every_recipe
def test_the_header_names_the_instance_and_a_source(path: Path) -> None:
    header = re.match(r"(#.*\n)+", path.read_text(encoding="utf-8"))
    assert header
    assert f"on {config_of(path).instance}" in header[0].replace("\n# ", " ")
    assert re.search(r"^# Source: .{20}", header[0], re.MULTILINE)


@every_recipe
def test_the_degree_is_usual_and_the_memory_fits(path: Path) -> None:
    config = config_of(path)
    assert config.instance
    instance, facts, draft = find_for_plan(config.instance), facts_of(config.model), draft_of(config)
    found = estimate(facts, config, instance, draft=draft)
    assert found is not None
    assert found.verdict is Verdict.FITS
    assert not unusual_degree(instance, found.shape.degree, config.logical_nc_config)
    assert {finding.severity for finding in memory_findings(found, facts, draft)} == {Severity.INFO}


@every_recipe
def test_it_plans_without_a_warning(path: Path) -> None:
    from handler.neuron.planning.planner import make_plan

    config = config_of(path)
    assert config.instance
    outcome = make_plan(config, facts_of(config.model), find_for_plan(config.instance))
    assert [str(finding) for finding in outcome.findings if finding.severity is not Severity.INFO] == []
    assert outcome.plan is not None
    assert outcome.plan.line == config.line


@pytest.mark.parametrize("variant", ["", "-fused-speculation", "-eagle"])
def test_405b_has_the_tutorials_lengths_and_kernels(variant: str) -> None:
    config = config_of(RECIPES / f"llama-3.1-405b{variant}-trn2.48xlarge.yaml")
    assert (config.tensor_parallel_size, config.max_model_len, config.max_context_length) == (64, 2048, 1024)
    assert config.attn_kernel_enabled
    assert config.qkv_kernel_enabled
    assert config.mlp_kernel_enabled
    greedy = {"dynamic": False, "do_sample": False, "top_k": 1}
    assert config.neuron_config.get("on_device_sampling_config") == (greedy if variant == "-eagle" else None)
    assert config.on_device_sampling is (None if variant == "-eagle" else True)
    assert config.num_speculative_tokens == (6 if variant else None)
    assert config.speculation == {"": None, "-fused-speculation": "draft_model", "-eagle": "eagle"}[variant]


def test_the_readme_has_the_table_of_the_files() -> None:
    import runpy

    table = runpy.run_path(str(RECIPES / "table.py"))["table"]()
    readme = (RECIPES / "README.md").read_text(encoding="utf-8")
    assert table in readme
    assert readme.count("| [") == len(FILES)


def test_the_plans_are_those_that_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What vLLM would be started with, by `neuron-endpoint plan --json`. After a change that is meant: `make plans`."""
    from tests.recipes import golden_plans

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert {file.stem for file in golden_plans.PLANS.glob("*.json")} == {path.stem for path in FILES}
    with golden_plans.published_models():
        for path in FILES:
            committed = json.loads((golden_plans.PLANS / f"{path.stem}.json").read_text(encoding="utf-8"))
            assert json.loads(golden_plans.plan_of(path)) == committed, path.stem
