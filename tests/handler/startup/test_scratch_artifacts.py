"""Without a store, the NxDI plugin compiles into the scratch directory, where a restart finds the artifacts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.json_value import Json
from handler.model.companions import Companions
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.startup import artifact_backends
from handler.startup.artifact_backends import with_scratch_artifacts
from handler.startup.checked_plan import checked_plan, with_model
from tests.handler.artifacts.artifact_files import write_artifacts

NAME = "NEURON_COMPILED_ARTIFACTS"
SHARDED = {"ENDPOINT_SAVE_SHARDED_CHECKPOINT": "true"}
SAMPLE = Model(str(sample_model.path()), ("sample",), 1)


def settings(scratch: Path, **environ: str) -> EndpointConfig:
    given = {"ENDPOINT_INSTANCE": "ml.trn1.32xlarge", "ENDPOINT_LINE": "nxdi-0.16", "ENDPOINT_SCRATCH": str(scratch)}
    return load({**given, **environ}, fetch=lambda location: None, model=SAMPLE.path)


def started(config: EndpointConfig, model: Model = SAMPLE) -> EnginePlan:
    return with_scratch_artifacts(config, with_model(checked_plan(config), model), model, Companions())


def directory(plan: EnginePlan, scratch: Path) -> Path:
    found = Path(plan.env[NAME])
    assert found.is_relative_to(scratch)
    return found


@pytest.mark.parametrize("line", ["nxdi-0.16", "fork-0.9.1"])
def test_a_start_compiles_into_scratch_and_says_what_would_keep_it(
    line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = started(settings(tmp_path, ENDPOINT_LINE=line))
    assert not directory(plan, tmp_path).is_relative_to(SAMPLE.path)
    assert "ENDPOINT_ARTIFACT_STORE" in caplog.text
    assert plan.env["NEURON_COMPILE_CACHE_URL"].startswith(str(tmp_path))


def test_a_restart_finds_what_was_compiled(tmp_path: Path) -> None:
    first = directory(started(settings(tmp_path)), tmp_path)
    shutil.copytree(write_artifacts(tmp_path / "compiled-by-the-plugin"), first)
    files = sorted(first.rglob("*"))
    assert directory(started(settings(tmp_path)), tmp_path) == first
    assert sorted(first.rglob("*")) == files, "nothing is removed"


def test_other_settings_are_compiled_elsewhere(tmp_path: Path) -> None:
    """The plugin would load the directory and ignore the settings."""
    first = started(settings(tmp_path))
    second = started(settings(tmp_path, SM_VLLM_MAX_MODEL_LEN="128"))
    assert directory(first, tmp_path) != directory(second, tmp_path)


def test_what_a_killed_compile_left_is_compiled_again(tmp_path: Path) -> None:
    """The plugin dies of a truncated model.pt, at every start."""
    left = directory(started(settings(tmp_path)), tmp_path)
    shutil.copytree(write_artifacts(tmp_path / "compiled-by-the-plugin"), left)
    graph = left / "model.pt"
    graph.write_bytes(graph.read_bytes()[:-40])
    assert directory(started(settings(tmp_path)), tmp_path) == left
    assert not left.exists()


def test_the_compiler_tries_a_graph_again_that_an_earlier_start_failed_to_compile(tmp_path: Path) -> None:
    failed = tmp_path / "neff-cache" / "neuronxcc-1.0" / "MODULE_1+a"
    failed.mkdir(parents=True)
    (failed / "model.log").write_text("[F137] neuronx-cc was forcibly killed")
    started(settings(tmp_path))
    assert not failed.exists()


def test_a_hub_model_has_a_directory_too(tmp_path: Path) -> None:
    config = settings(tmp_path)
    one = directory(started(config, Model("org/one", ("one",), 0)), tmp_path)
    assert one != directory(started(config, Model("org/two", ("two",), 0)), tmp_path)


def fine_tune(directory: Path) -> Model:
    """A model of the same shape with other weights."""
    shutil.copytree(SAMPLE.path, directory)
    weights = next(directory.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 255
    weights.write_bytes(content)
    return Model(str(directory), ("tuned",), 1)


def test_another_checkpoint_of_the_same_shape_never_gets_these_shards(tmp_path: Path) -> None:
    config, tuned = settings(tmp_path, **SHARDED), fine_tune(tmp_path / "tuned")
    assert directory(started(config), tmp_path) != directory(started(config, tuned), tmp_path)


def test_the_shards_of_a_multimodal_model_have_the_checkpoint_in_their_key(tmp_path: Path) -> None:
    """Its keys are one level down."""
    config, tuned = settings(tmp_path), fine_tune(tmp_path / "tuned")
    for sharded, same in ((False, True), (True, False)):
        override: dict[str, Json] = {"text_neuron_config": {"save_sharded_checkpoint": sharded}}
        plan = EnginePlan("nxdi-0.16", {"additional_config": {"override_neuron_config": override}})
        one, two = (
            directory(with_scratch_artifacts(config, with_model(plan, model), model, Companions()), tmp_path)
            for model in (SAMPLE, tuned)
        )
        assert (one == two) is same


def test_another_checkpoint_of_the_same_shape_shares_the_graph_and_is_loaded_from_its_own_path(tmp_path: Path) -> None:
    config, tuned = settings(tmp_path), fine_tune(tmp_path / "tuned")
    compiled = directory(started(config), tmp_path)
    shutil.copytree(write_artifacts(tmp_path / "compiled-by-the-plugin"), compiled)
    assert directory(started(config, tuned), tmp_path) == compiled
    assert json.loads((compiled / "neuron_config.json").read_text())["_name_or_path"] == tuned.path


HUB = Model("org/one", ("one",), 0)


def test_a_hub_model_is_compiled_again_by_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = directory(started(settings(tmp_path), HUB), tmp_path)
    assert directory(started(settings(tmp_path), HUB), tmp_path) == before
    monkeypatch.setattr(artifact_backends, "neuron_versions", lambda: {"neuronx-cc": "2.99"})
    assert directory(started(settings(tmp_path), HUB), tmp_path) != before


@pytest.mark.parametrize(("revision", "kept"), [("main", False), ("a" * 40, True)])
def test_shards_of_a_hub_model_are_kept_for_a_commit_and_not_for_a_branch(
    tmp_path: Path, revision: str, kept: bool
) -> None:
    config = settings(tmp_path, HF_REVISION=revision, **SHARDED)
    shards = directory(started(config, HUB), tmp_path)
    shutil.copytree(write_artifacts(tmp_path / "compiled-by-the-plugin"), shards)
    assert directory(started(config, HUB), tmp_path) == shards
    assert shards.exists() is kept


def test_another_commit_of_a_hub_model_never_gets_these_shards(tmp_path: Path) -> None:
    one, two = (settings(tmp_path, HF_REVISION=letter * 40, **SHARDED) for letter in "ab")
    assert directory(started(one, HUB), tmp_path) != directory(started(two, HUB), tmp_path)


@pytest.mark.parametrize(
    "environ",
    [
        {"ENDPOINT_ARTIFACT_STORE": "s3://bucket/store"},
        {NAME: "/somewhere/else"},
        {"ENDPOINT_LINE": "native-0.24", "ENDPOINT_INSTANCE": "ml.trn2.48xlarge"},
        {"ENDPOINT_LINE": "fork-0.9.1-tnx"},
    ],
)
def test_a_store_a_directory_and_the_native_plugin_have_their_own_places(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    config = settings(tmp_path, **environ)
    plan = with_model(checked_plan(config), SAMPLE)
    assert with_scratch_artifacts(config, plan, SAMPLE, Companions()) is plan
