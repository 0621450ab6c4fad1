"""The installed vLLM, the tested versions, and the arguments of each version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.config.vllm_argument_table import versions
from handler.neuron.hardware import installed_packages as installed_module
from handler.neuron.lines.line_registry import NAMES
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.planner import make_plan
from handler.neuron.planning.vllm_versions import OF_LINE, SEEN, InstalledVllm, version_of
from tests.handler.neuron.neuron_plans import found, outcome

ROOT = Path(__file__).parents[3]


def test_every_version_of_a_line_or_seen_has_its_table_of_arguments() -> None:
    assert {*OF_LINE.values(), *SEEN} <= set(versions())
    assert set(OF_LINE) <= set(NAMES)


def test_make_has_pins_for_every_version_seen() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"^TORCH_(\S+) :=", makefile, re.MULTILINE)) == set(SEEN)
    for version in SEEN:
        own = "" if f"VLLM := {version}\n" in makefile else f"-{version}"
        assert (ROOT / "requirements" / f"engine-cpu{own}.in").is_file()
        assert (ROOT / "requirements" / f"lock{own}.txt").is_file()


@pytest.mark.parametrize(
    ("line", "packages", "version"),
    [
        ("nxdi-0.16", {}, "0.16.0"),
        ("native-0.24", {"vllm": "0.16.0+cpu"}, "0.24.0"),
        ("cpu", {"vllm": "0.24.0+cpu"}, "0.24.0"),
        ("nxdi-0.13", {"vllm": "0.13.1", "vllm-neuron": "0.4.1"}, "0.13.1"),
        ("optimum", {}, "0.11.0"),
        ("no-line", {}, None),
    ],
)
def test_the_installed_version_counts_where_it_makes_the_line(
    line: str, packages: dict[str, str], version: str | None
) -> None:
    assert version_of(line, packages) == version


def test_a_value_is_held_to_the_version_of_the_line() -> None:
    given = {"kv_cache_dtype": "nvfp4"}
    codes = {finding.code for finding in outcome("native-0.24", engine_args=given).errors}
    assert codes == {"not-on-native"}, "vLLM 0.24 has the value, and the plugin has not"
    told = found(outcome("nxdi-0.16", engine_args=given), "value-of-another-version")
    assert (told.severity, told.setting) == (Severity.ERROR, "kv_cache_dtype")
    assert "fp8" in told.fix


def test_the_cpu_line_is_held_to_what_is_installed() -> None:
    config = EndpointConfig(model="/m", engine_args={"watermark": 0.1})
    assert make_plan(config, None, None, line="cpu", installed={"vllm": "0.24.0"}).plan is not None
    assert make_plan(config, None, None, line="cpu", installed={"vllm": "0.16.0"}).plan is None
    # A version without a table: vLLM's own parser decides at the start.
    assert make_plan(config, None, None, line="cpu", installed={"vllm": "0.19.1"}).plan is not None


def test_an_unseen_vllm_is_a_warning_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_module, "installed_versions", lambda: {"vllm": "0.19.1+cpu"})
    examination = examine_config(EndpointConfig(model=str(sample_model.path())))
    assert examination.vllm == InstalledVllm("0.19.1", "")
    assert examination.document()["vllm"] == {"version": "0.19.1", "seen": ""}
    (told,) = [finding for finding in examination.findings if finding.code == "vllm-not-seen"]
    assert told.severity is Severity.WARNING
    assert "0.19.1" in told.why
    assert not examination.failed


@pytest.mark.parametrize("version", SEEN)
def test_a_tested_vllm_reports_what_was_run(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(installed_module, "installed_versions", lambda: {"vllm": version})
    examination = examine_config(EndpointConfig(model=str(sample_model.path())))
    assert str(examination.vllm) == f"vLLM {version} is installed: {SEEN[version]}"
    assert "vllm-not-seen" not in {finding.code for finding in examination.findings}
