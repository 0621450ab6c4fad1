"""vLLM without a plugin on a Neuron machine: `check` says so before a start does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sample_model
from handler.neuron.hardware import current_machine
from model_packaging.cli import main

MODEL = str(sample_model.path())


def checked(directory: Path, environ: dict[str, str]) -> tuple[int, list[dict[str, Any]]]:
    file = directory / "endpoint.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
    result = CliRunner().invoke(main, ["check", "--json", "--env-file", str(file), MODEL], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)["findings"]


@pytest.fixture
def neuron_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The firmware's file of an Inf2 instance. The installed vLLM is the one for CPUs."""
    firmware = tmp_path / "product_name"
    firmware.write_text("inf2.xlarge\n")
    monkeypatch.setattr(current_machine, "PRODUCT_NAMES", (str(firmware),))


@pytest.mark.usefixtures("neuron_machine")
def test_plain_vllm_on_a_neuron_machine_is_an_error_of_check(tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {})
    (finding,) = [one for one in findings if one["severity"] == "error"]
    assert status == 1
    assert finding["code"] == "plugin-missing"
    assert finding["setting"] == "ENDPOINT_LINE"
    assert "without a Neuron plugin" in finding["why"]


@pytest.mark.usefixtures("neuron_machine")
@pytest.mark.parametrize("environ", [{"ENDPOINT_LINE": "cpu"}, {"ENDPOINT_INSTANCE": "ml.inf2.xlarge"}], ids=str)
def test_the_cpu_line_and_a_plan_for_another_machine_are_none(tmp_path: Path, environ: dict[str, str]) -> None:
    status, findings = checked(tmp_path, environ)
    assert status == 0, findings


def test_a_machine_without_neuron_devices_needs_no_plugin(tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {})
    assert status == 0, findings
