"""A compile that is made to fail, at each of its stages, and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from neuron_stand_in.settings import Fault, Stage, StandInSettings

from tests.neuron_contract.small_model import serve, write_model

LEFT = {
    Stage.CONFIG: ["neuron_config.json"],
    Stage.TRACE: ["neuron_config.json"],
    Stage.MODEL: ["model.pt", "neuron_config.json"],
    Stage.SHARDS: ["model.pt", "neuron_config.json", "weights"],
    Stage.LOAD: ["model.pt", "neuron_config.json", "weights"],
}


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize("stage", LEFT)
def test_what_a_failed_compile_leaves(local: Path, tmp_path: Path, stage: Stage) -> None:
    settings = StandInSettings(fault=Fault.EXCEPTION, fault_at=stage)
    with pytest.raises(RuntimeError, match="stand-in"):
        serve(local, {"NEURON_COMPILED_ARTIFACTS": str(tmp_path / "a")}, settings, save_sharded_checkpoint=True)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == LEFT[stage]


def test_an_interrupted_compile_is_recompiled_but_half_a_model_is_not(local: Path, tmp_path: Path) -> None:
    environment = {"NEURON_COMPILED_ARTIFACTS": str(tmp_path / "a")}
    with pytest.raises(RuntimeError):
        serve(local, environment, StandInSettings(fault=Fault.EXCEPTION, fault_at=Stage.TRACE))
    assert serve(local, environment).compiled
    (tmp_path / "a" / "model.pt").unlink()
    with pytest.raises(RuntimeError):
        serve(local, environment, StandInSettings(fault=Fault.EXCEPTION, fault_at=Stage.MODEL))
    with pytest.raises(RuntimeError, match=r"model\.pt"):
        serve(local, environment)


def test_a_fault_that_strikes_once(local: Path, tmp_path: Path) -> None:
    settings = StandInSettings(fault=Fault.EXCEPTION, fault_once=tmp_path / "struck")
    with pytest.raises(RuntimeError):
        serve(local, {}, settings)
    assert serve(local, {}, settings).compiled


def test_out_of_memory_has_the_compilers_code(local: Path) -> None:
    with pytest.raises(RuntimeError, match="F137"):
        serve(local, {}, StandInSettings(fault=Fault.OOM))
    with pytest.raises(RuntimeError, match="device memory"):
        serve(local, {}, StandInSettings(fault=Fault.OOM, fault_at=Stage.LOAD))


@pytest.mark.parametrize(("fault", "status"), [("exit", 70), ("kill", -9)])
def test_a_process_that_is_gone(local: Path, tmp_path: Path, fault: str, status: int) -> None:
    here = Path(__file__).parent
    program = (
        "import sys; from pathlib import Path; from tests.neuron_contract.small_model import serve; import os;"
        "from neuron_stand_in.settings import StandInSettings;"
        "serve(Path(sys.argv[1]), dict(os.environ), StandInSettings.read(os.environ))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(local)],
        env={
            "PYTHONPATH": f"{here.parents[1]}:{here.parent / 'neuron_stand_in'}",
            "NEURON_COMPILED_ARTIFACTS": str(tmp_path / "a"),
            "STAND_IN_FAULT": fault,
            "STAND_IN_FAULT_AT": "config",
        },
        timeout=60,
        check=False,
    )
    assert ended.returncode == status
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["neuron_config.json"]


@pytest.mark.parametrize("name", ["FAULT", "FAULT_AT"])
def test_a_misspelt_fault_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="'never'"):
        StandInSettings.read({f"STAND_IN_{name}": "never"})
