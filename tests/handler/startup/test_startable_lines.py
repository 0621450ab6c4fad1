"""A start on a line that this container cannot serve is rejected with the sentence of `check`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sample_model
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.startup.checked_plan import checked_plan, require_line
from model_packaging.cli import main
from model_packaging.examination_report import examine

MODEL = str(sample_model.path())
LINE = "ENDPOINT_LINE"


@pytest.mark.parametrize(
    "environ",
    [
        {LINE: "fork-0.9.1"},
        {LINE: "fork-0.7.2"},
        {LINE: "fork-0.7.2", "VLLM_NEURON_FRAMEWORK": "transformers-neuronx"},
    ],
    ids=str,
)
def test_a_line_for_plans_only_does_not_start(environ: dict[str, str]) -> None:
    given = {"ENDPOINT_INSTANCE": "ml.trn1.32xlarge", **environ}
    found = examine(given, MODEL, instance=None, line=None, fetch=lambda location: None)
    (finding,) = [finding for finding in found.findings if finding.code == "line-not-served"]
    with pytest.raises(SettingError) as caught:
        require_line(checked_plan(load(given, fetch=lambda location: None, model=MODEL)), LINE)
    assert caught.value.problem == finding.why
    assert caught.value.setting == finding.setting


@pytest.mark.parametrize(("framework", "line"), [("transformers-neuronx", "fork-0.7.2")])
def test_a_framework_without_a_served_line_is_an_error_with_a_fix_that_works(
    framework: str, line: str, tmp_path: Path
) -> None:
    def checked(**environ: str) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "endpoint.env"
        file.write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
        words = ["check", "--json", "--env-file", str(file), "--instance", "ml.trn1.32xlarge", MODEL]
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        return result.exit_code, json.loads(result.stdout)

    status, document = checked(VLLM_NEURON_FRAMEWORK=framework)
    (finding,) = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert (status, finding["code"], finding["setting"]) == (1, "line-not-served", "VLLM_NEURON_FRAMEWORK")
    served, planned = re.findall(r"ENDPOINT_LINE(?: to |=)([\w.-]+)\b", finding["fix"])
    assert "remove VLLM_NEURON_FRAMEWORK" in finding["fix"]
    assert checked(ENDPOINT_LINE=served)[0] == 0
    assert planned == line
    assert checked(ENDPOINT_LINE=planned, VLLM_NEURON_FRAMEWORK=framework)[0] == 0


def test_a_neuron_line_without_a_plugin_does_not_start() -> None:
    given = {"ENDPOINT_INSTANCE": "ml.trn1.32xlarge", LINE: "nxdi-0.16"}
    plan = checked_plan(load(given, fetch=lambda location: None, model=MODEL))
    with pytest.raises(SettingError, match="without a Neuron plugin"):
        require_line(plan, LINE)


def test_the_cpu_line_starts() -> None:
    require_line(checked_plan(load({}, fetch=lambda location: None, model=MODEL)), LINE)
