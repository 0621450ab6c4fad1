"""External artifacts are loaded only if they match the plan."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from container.service import Service
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.store.publication import MADE_WEIGHTS
from handler.config.endpoint_config import EndpointConfig
from handler.config.problems import SettingErrors
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.startup.external_artifacts_loading import keep_compiled, with_external_artifacts
from tests.handler.artifacts.artifact_files import write_artifacts

NAME = "NEURON_COMPILED_ARTIFACTS"


def plan(**arguments: object) -> EnginePlan:
    arguments = {"tensor_parallel_size": 2, "max_num_seqs": 4, "max_model_len": 4096, **arguments}
    return EnginePlan("nxdi-0.16", arguments)  # type: ignore[arg-type]


def service(directory: Path, scratch: Path, hidden_size: int = 64) -> Service:
    sources = {"compiled_artifacts": ValueSource(Origin.ENVIRONMENT, NAME)}
    model = scratch / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": hidden_size}))
    return Service.of(
        EndpointConfig(model=str(model), compiled_artifacts=str(directory), scratch=scratch, sources=sources)
    )


def loaded(state: Service, planned: EnginePlan) -> EnginePlan:
    return with_external_artifacts(state, planned, ModelPaths(model="/here/model"))


def test_artifacts_that_fit_are_named_to_the_plugin(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    found = loaded(service(directory, tmp_path), plan())
    assert found.env[NAME] == str(directory)


def test_a_difference_stops_the_start_with_both_values(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    with pytest.raises(SettingErrors) as caught:
        loaded(service(directory, tmp_path), plan(tensor_parallel_size=4, max_model_len=8192))
    message = caught.value.message
    assert "2" in message
    assert "4" in message
    assert "8192" in message


def test_another_lnc_and_another_model_stop_the_start(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    two = replace(plan(), env={"NEURON_LOGICAL_NC_CONFIG": "2"})
    with pytest.raises(SettingErrors, match="logical_nc_config = 1, but 2"):
        loaded(service(directory, tmp_path), two)
    with pytest.raises(SettingErrors, match="hidden_size = 64, but 128"):
        loaded(service(directory, tmp_path, hidden_size=128), plan())


def test_a_truncated_graph_stops_the_start(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    graph = directory / "model.pt"
    graph.write_bytes(graph.read_bytes()[:-40])
    with pytest.raises(SettingErrors, match=r"model\.pt"):
        loaded(service(directory, tmp_path), plan())


def test_an_archive_that_was_replaced_as_the_error_advises_is_unpacked_again(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    graph = (directory / "model.pt").read_bytes()
    archive = tmp_path / "model.tar.gz"
    for content, usable in ((graph[:-40], False), (graph, True)):
        (directory / "model.pt").write_bytes(content)
        with tarfile.open(archive, "w:gz") as file:
            file.add(directory, ".")
        with nullcontext() if usable else pytest.raises(SettingErrors, match=r"model\.pt"):
            loaded(service(archive, tmp_path), plan())


def test_what_was_unpacked_names_this_machines_model(tmp_path: Path) -> None:
    """NxD Inference reads the checkpoint from that path. Where it is not there, the plugin compiles again."""
    directory = write_artifacts(tmp_path / "compiled")
    saved = json.loads((directory / "neuron_config.json").read_text())
    (directory / "neuron_config.json").write_text(json.dumps({**saved, "_name_or_path": "/home/ubuntu/model"}))
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(directory, ".")
    for source, name in ((archive, "/here/model"), (directory, "/home/ubuntu/model")):  # the owner's files stay
        found = Path(loaded(service(source, tmp_path), plan()).env[NAME])
        assert json.loads((found / "neuron_config.json").read_text())["_name_or_path"] == name


def test_quantized_weights_that_a_compile_made_are_those_beside_its_graphs(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    saved = json.loads((directory / "neuron_config.json").read_text())
    saved["neuron_config"] |= {"quantized": True, "quantized_checkpoints_path": "/home/ubuntu/int8"}
    (directory / "neuron_config.json").write_text(json.dumps(saved))
    (made := directory / MADE_WEIGHTS).mkdir(parents=True)
    (made / "model.safetensors").touch()
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as tar:
        tar.add(directory, ".")
    quantized = plan(additional_config={"override_neuron_config": {"quantized": True}})
    found = Path(loaded(service(tmp_path / "model.tar.gz", tmp_path), quantized).env[NAME])
    config = json.loads((found / "neuron_config.json").read_text())["neuron_config"]
    assert config["quantized_checkpoints_path"] == str(found / MADE_WEIGHTS)


def test_weights_at_another_machines_path_stop_the_start(tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "compiled")
    saved = json.loads((directory / "neuron_config.json").read_text())
    saved["neuron_config"]["save_sharded_checkpoint"] = False
    saved["_name_or_path"] = str(tmp_path / "elsewhere")
    (directory / "neuron_config.json").write_text(json.dumps(saved))
    unsharded = plan(additional_config={"override_neuron_config": {"save_sharded_checkpoint": False}})
    with pytest.raises(SettingErrors, match=r"elsewhere.*would compile again"):
        loaded(service(directory, tmp_path), unsharded)
    (directory / "model.safetensors").touch()  # beside the graph they are found, too
    loaded(service(directory, tmp_path), unsharded)
    (directory / "model.safetensors").unlink()
    (tmp_path / "elsewhere").mkdir()
    loaded(service(directory, tmp_path), unsharded)


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_that_is_missing_or_empty_is_compiled_into(tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "parent" / "compiled"
    if there:
        directory.mkdir(parents=True)
    compiled = loaded(service(directory, tmp_path), plan())
    compile_into(Path(compiled.env[NAME]), tmp_path)
    keep_compiled(compiled)
    assert {path.name for path in directory.iterdir()} == {"neuron_config.json", "model.pt", "weights"}
    assert loaded(service(directory, tmp_path), plan()).env[NAME] == str(directory)


def compile_into(directory: Path, place: Path) -> None:
    """As the plugin does."""
    shutil.copytree(write_artifacts(place / "by-the-plugin"), directory, dirs_exist_ok=True)


def end(compile_directory: Path) -> None:
    """As the end of the process that compiles there: its lock goes."""
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        if descriptor.resolve() == compile_directory:
            os.close(int(descriptor.name))


@pytest.mark.parametrize("left", ["nothing", "neuron_config.json", "model.pt", "weights"])
def test_a_compile_that_was_killed_is_begun_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str) -> None:
    """NxDI writes the three in this order."""
    directory = tmp_path / "compiled"
    killed = Path(loaded(service(directory, tmp_path), plan()).env[NAME])
    compile_into(killed, tmp_path)
    for name in ("weights", "model.pt", "neuron_config.json"):
        if name == left:
            break
        path = killed / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    running = Path(loaded(service(directory, tmp_path), plan()).env[NAME])
    assert killed.exists()
    end(killed)
    again = Path(loaded(service(directory, tmp_path), plan()).env[NAME])
    assert list(again.iterdir()) == []
    assert "interrupted" in caplog.text
    assert (killed.exists(), running.exists()) == (False, True)


def test_who_compiles_second_leaves_the_artifacts_of_the_first(tmp_path: Path) -> None:
    """Two instances have the same volume."""
    directory = tmp_path / "compiled"
    second = loaded(service(directory, tmp_path), plan())
    write_artifacts(tmp_path / "first")
    for path in (tmp_path / "first").iterdir():
        path.rename(directory / path.name)
    (directory / "model.pt").touch()
    before = (directory / "model.pt").stat().st_ino
    compile_into(Path(second.env[NAME]), tmp_path)
    keep_compiled(second)
    assert (directory / "model.pt").stat().st_ino == before
    assert {path.name for path in directory.iterdir()} == {"neuron_config.json", "model.pt", "weights"}


def test_a_directory_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingError, match=NAME):
        loaded(service(tmp_path / "file" / "compiled", tmp_path), plan())
    with pytest.raises(SettingError, match=f"{NAME}.*read-only"):
        loaded(service(Path("/opt/ml/model/compiled"), tmp_path), plan())


@pytest.mark.parametrize(
    ("name", "on_miss"), [("compiled.tar.gz", "compile"), ("compiled", "fail"), ("compiled", "wait")]
)
def test_artifacts_that_are_not_there_name_the_setting(tmp_path: Path, name: str, on_miss: str) -> None:
    """An archive must exist, and a directory too where a start may not compile."""
    state = service(tmp_path / name, tmp_path)
    forbidden = Service.of(replace(state.config, on_miss=on_miss))
    with pytest.raises(SettingError, match=NAME):
        loaded(forbidden, plan())


def test_the_cpu_line_has_none(tmp_path: Path) -> None:
    cpu = EnginePlan("cpu", {})
    assert loaded(service(tmp_path / "nowhere", tmp_path), cpu) is cpu
