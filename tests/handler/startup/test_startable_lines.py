"""A start on a line that this container cannot serve is rejected with the sentence of `check`."""

from __future__ import annotations

import pytest

import sample_model
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.startup.checked_plan import checked_plan, require_line
from model_packaging.examination_report import examine

MODEL = str(sample_model.path())
LINE = "ENDPOINT_LINE"


@pytest.mark.parametrize(
    "environ",
    [
        {LINE: "fork-0.7.2"},
        {LINE: "nxdi-0.13"},
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


@pytest.mark.parametrize(
    "environ",
    [
        {LINE: "nxdi-0.16"},
        {LINE: "fork-0.9.1"},
        {LINE: "fork-0.9.1-tnx"},
        {"VLLM_NEURON_FRAMEWORK": "transformers-neuronx"},
    ],
    ids=str,
)
def test_a_neuron_line_without_a_plugin_does_not_start(environ: dict[str, str]) -> None:
    given = {"ENDPOINT_INSTANCE": "ml.trn1.32xlarge", **environ}
    plan = checked_plan(load(given, fetch=lambda location: None, model=MODEL))
    with pytest.raises(SettingError, match="without a Neuron plugin"):
        require_line(plan, LINE)


def test_the_cpu_line_starts() -> None:
    require_line(checked_plan(load({}, fetch=lambda location: None, model=MODEL)), LINE)
