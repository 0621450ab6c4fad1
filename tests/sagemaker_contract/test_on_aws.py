"""The script of the first day on AWS, run against the local SageMaker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from benchmarks.on_aws import FACT, FirstDay, kind_of
from tests.local_sagemaker.local_service import LocalService

ROOT = Path(__file__).parents[2]
CALLS = 14


# As the Makefile sets them for a small machine.
SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, value in SMALL.items():
        monkeypatch.setenv(name, os.environ.get(name, value))
    service = LocalService(tmp_path / "local", "--bucket", "first", "--ping-every", "0.5")
    yield service.state
    service.down()


@pytest.mark.engine
@pytest.mark.slow
def test_nothing_differs_on_the_local_sagemaker(state: Path) -> None:
    """Each kind of call, and a batch transform job of each spelling, on the real engine."""
    words = ("on-aws", "--local", "--bucket", "first", "--set", "SM_VLLM_ENFORCE_EAGER=true")
    environ = {**os.environ, "LOCAL_SAGEMAKER_STATE": str(state)}
    command = [sys.executable, "-m", "benchmarks", *words]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nsame ") == CALLS
    assert done.stdout.endswith("Nothing differs.\n")


def test_what_differs_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    day = FirstDay("b", None, "ml.inf2.xlarge", None, (), True, None, None, None, differing=[])

    def refused() -> None:
        raise ClientError({"Error": {"Code": "ValidationError"}}, "InvokeEndpoint")

    day.compare("an error", "ModelError 400", refused)
    day.compare("a reply", 1, lambda: 1)
    assert day.differing == ["an error"]
    assert (
        "DIFFERS  an error\n           expected 'ModelError 400'\n           seen     'ValidationError'\n"
        in capsys.readouterr().out
    )
    lines = ("", json.dumps({"error": {}}), json.dumps({"text": FACT.answer}), "AlgorithmError")
    assert [kind_of(line) for line in lines] == ["blank", "error", "answer", "AlgorithmError"]
