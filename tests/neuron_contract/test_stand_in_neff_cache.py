"""The compiler's cache underneath."""

from __future__ import annotations

from pathlib import Path

import pytest
from neuron_stand_in.settings import Fault, StandInSettings

from tests.neuron_contract.small_model import serve, write_model


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def modules(cache: Path) -> list[Path]:
    return sorted(cache.glob("neuronxcc-*/MODULE_*"))


def test_each_graph_has_a_directory(local: Path, cache: Path) -> None:
    serve(local, {"NEURON_COMPILE_CACHE_URL": str(cache)}, StandInSettings(compiler="2.99.1"))
    found = modules(cache)
    assert len(found) == 4  # two buckets, prefill and decode
    assert {path.parent.name for path in found} == {"neuronxcc-2.99.1"}
    names = {"model.hlo_module.pb", "model.hlo_module.pb.lock", "compile_flags.json", "model.neff", "model.done"}
    assert {path.name for path in found[0].iterdir()} == names


def test_a_second_compile_takes_from_it(local: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("neuron_stand_in.nxdi.compiler.time.sleep", slept.append)
    settings = StandInSettings(compile_seconds=4)
    environment = {"NEURON_COMPILE_CACHE_URL": str(cache)}
    serve(local, environment, settings)
    assert slept == [1.0] * 4
    serve(local, environment, settings)
    assert len(slept) == 4
    serve(local, {}, settings)  # without a cache
    assert len(slept) == 8


def test_a_failed_graph_is_never_tried_again(local: Path, cache: Path) -> None:
    environment = {"NEURON_COMPILE_CACHE_URL": str(cache)}
    with pytest.raises(RuntimeError):
        serve(local, environment, StandInSettings(fault=Fault.EXCEPTION))
    poisoned = [path for path in modules(cache) if (path / "model.log").exists()]
    assert len(poisoned) == 1
    assert not (poisoned[0] / "model.neff").exists()
    with pytest.raises(RuntimeError, match="cached failed neff"):
        serve(local, environment)


def test_unless_the_flags_say_so(local: Path, cache: Path) -> None:
    environment = {"NEURON_COMPILE_CACHE_URL": str(cache), "NEURON_CC_FLAGS": "--retry_failed_compilation"}
    with pytest.raises(RuntimeError):
        serve(local, environment, StandInSettings(fault=Fault.EXCEPTION))
    assert serve(local, environment).compiled


@pytest.mark.parametrize(("flags", "shared"), [("", False), ("--logfile=/tmp/log.txt", True)])
def test_the_work_directory_is_in_the_key_unless_a_log_file_is_named(
    local: Path, cache: Path, tmp_path: Path, flags: str, shared: bool
) -> None:
    for number in range(2):
        workdir = str(tmp_path / f"work{number}")
        serve(
            local,
            {"NEURON_COMPILE_CACHE_URL": str(cache), "BASE_COMPILE_WORK_DIR": workdir, "NEURON_CC_FLAGS": flags},
        )
    assert len(modules(cache)) == (4 if shared else 8)
