"""Each plan for the native plugin starts by the plugin's rules, or `check` rejects the settings and names one."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from neuron_stand_in.native.configuration import NativeConfiguration
from neuron_stand_in.native.native_rules import Refusal, refusal
from neuron_stand_in.native.read_keys import ignored

from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.planner import make_plan
from tests.neuron_contract.engine_run import run_engine
from tests.neuron_contract.typed_settings import MODELS, single_settings, typed_settings

COUNT, SEED = 300, 22
TYPED = [*typed_settings(COUNT, SEED), *single_settings()]
RECIPES = Path(__file__).parents[2] / "recipes"
NATIVE_RECIPES = [path for path in sorted(RECIPES.glob("*.yaml")) if "\nline: native" in path.read_text()]
PUBLISHED: dict[str, dict[str, Any]] = json.loads((RECIPES.parent / "tests/recipes/published_models.json").read_text())


def checked(environment: dict[str, str], model: dict[str, Any]) -> tuple[EnginePlan | None, list[str]]:
    """The plan and the settings that are rejected, as `neuron-endpoint check` and `serve` have them."""
    try:
        config = load(environment)
    except SettingError as error:
        return None, [error.setting]
    facts = facts_from(model, config.model, True, None, 16_000_000_000)
    outcome = make_plan(config, facts, this_machine(config))
    return outcome.plan, [finding.setting for finding in outcome.errors]


def refused(plan: EnginePlan, model: dict[str, Any], target: str = "trn2") -> Refusal | None:
    return refusal(NativeConfiguration.of_arguments(plan.engine_args, model, plan.env, target))


@pytest.mark.parametrize("number", range(len(TYPED)))
def test_settings_start_or_are_rejected_by_name(number: int) -> None:
    name, environment = TYPED[number]
    plan, rejected = checked(environment, MODELS[name])
    if plan is None:
        assert rejected
        assert all(rejected)
        return
    assert refused(plan, MODELS[name]) is None, environment
    additional = plan.engine_args["additional_config"]
    assert isinstance(additional, dict)
    assert list(ignored(additional)) == []
    section = additional["neuron_config"]
    assert isinstance(section, dict)
    assert "on_device_sampling_config" in section
    for said in ("enable_prefix_caching", "async_scheduling", "max_num_batched_tokens"):
        assert plan.engine_args[said] is not None


def test_many_of_them_start_and_many_are_rejected() -> None:
    plans = [checked(environment, MODELS[name])[0] for name, environment in TYPED]
    started = sum(plan is not None for plan in plans)
    assert len(TYPED) / 5 < started < len(TYPED) * 4 / 5


@pytest.mark.parametrize("path", NATIVE_RECIPES, ids=lambda path: path.stem)
def test_a_recipe_starts(path: Path) -> None:
    config = load({"ENDPOINT_CONFIG": str(path)})
    model, instance = PUBLISHED[config.model]["config"], this_machine(config)
    assert instance is not None
    plan, rejected = checked({"ENDPOINT_CONFIG": str(path)}, model)
    assert (rejected, plan is None) == ([], False)
    assert plan is not None
    assert refused(plan, model, instance.platform) is None


@pytest.mark.parametrize("line", ["native-0.24", "native-0.29"])
@pytest.mark.parametrize("name", ["llama", "short", "shortest", "qwen3", "gpt-oss"])
def test_a_model_starts_without_settings(name: str, line: str) -> None:
    plan, rejected = checked({"ENDPOINT_LINE": line, "ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}, MODELS[name])
    assert rejected == []
    assert plan is not None
    assert refused(plan, MODELS[name]) is None


def directory_of(tmp_path: Path, name: str, config: dict[str, Any]) -> str:
    """A directory with a model's configuration and no weights."""
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


@pytest.mark.engine
@pytest.mark.timeout(1800)
def test_vllms_own_parser_takes_the_plans(site: Path, tmp_path: Path) -> None:
    """vLLM 0.24 parses each plan that `check` lets through, and the stand-in's rules pass what it builds."""
    version = installed_versions()["vllm"]
    if not version.startswith("0.24."):
        pytest.skip(f"the native plugin's vLLM is 0.24, and {version} is installed (make test VLLM=0.24.0)")
    jobs: list[dict[str, Any]] = []
    names: list[object] = []
    for name, environment in TYPED:
        plan, _ = checked(environment, MODELS[name])
        if (
            plan is None
            or plan.env.keys() & {"VLLM_ALLOW_LONG_MAX_MODEL_LEN"}
            or "speculative_config" in plan.engine_args
        ):
            continue  # a variable of one plan is of the whole process, and no draft model is on this machine
        jobs.append({**plan.engine_args, "model": directory_of(tmp_path, name, MODELS[name])})
        names.append(environment)
    for path in NATIVE_RECIPES:
        config = load({"ENDPOINT_CONFIG": str(path)})
        if config.vision_neuron_config and find_spec("torchvision") is None:
            continue  # vLLM's code for the model imports it, and the environment of the CPU engine has not got it
        model, instance = PUBLISHED[config.model]["config"], this_machine(config)
        plan, _ = checked({"ENDPOINT_CONFIG": str(path)}, model)
        assert plan is not None
        assert instance is not None
        directory = directory_of(tmp_path, path.stem, model)
        jobs.append({**plan.engine_args, "model": directory, "target": instance.platform})
        if config.speculative_model:
            draft = directory_of(tmp_path, "draft", PUBLISHED[config.speculative_model]["config"])
            given = plan.engine_args["speculative_config"]
            assert isinstance(given, dict)
            jobs[-1]["speculative_config"] = {**given, "model": draft}
        names.append(path.stem)
    jobs = [{"target": "trn2", **job, "skip_tokenizer_init": True} for job in jobs]
    answer = run_engine(site, tmp_path / "run", {"NEURON_STAND_IN": "native"}, within=1700, configure=jobs).answer
    failed = [(names[number], one) for number, one in enumerate(answer["configured"]) if "error" in one]
    assert failed == []
    assert len(answer["configured"]) > COUNT / 8
