"""A model, or a draft model, in an S3 that cannot be reached is an error of its setting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.file_examination import file_findings, with_files
from handler.processes import free_port


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def unreadable(config: EndpointConfig) -> list[tuple[Severity, str]]:
    """The severity and the setting of each finding about a model that cannot be read."""
    found = [finding for finding in examine_config(config).findings if finding.code == "model-unreadable"]
    assert all("Could not connect" in finding.why for finding in found)
    return [(finding.severity, finding.setting) for finding in found]


def test_a_model() -> None:
    assert unreadable(EndpointConfig(model="s3://bucket/model")) == [(Severity.ERROR, "MODEL")]


def test_a_draft_model_for_another_machine_is_a_warning() -> None:
    here = EndpointConfig(model=str(sample_model.path()), speculative_model="s3://bucket/draft", line="nxdi-0.16")
    there = EndpointConfig(
        model=str(sample_model.path()), speculative_model="s3://bucket/draft", instance="ml.trn1.2xlarge"
    )
    assert unreadable(here) == [(Severity.ERROR, "speculative_model")]
    assert unreadable(there) == [(Severity.WARNING, "speculative_model")]


def test_a_drafts_directory_is_named_by_its_own_setting() -> None:
    here = EndpointConfig(model=str(sample_model.path()), speculative_model="/no/draft", speculation="eagle")
    for config, severity in ((here, Severity.ERROR), (replace(here, instance="ml.trn1.2xlarge"), Severity.WARNING)):
        found = [found for found in with_files(examine_config(config)).findings if "/no/draft" in found.why]
        assert {(finding.severity, finding.setting) for finding in found} == {(severity, "speculative_model")}


def test_what_a_drafts_files_lack_is_named_with_the_drafts_setting(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    config = EndpointConfig(model=str(sample_model.path()), speculative_model=str(tmp_path), speculation="eagle")
    settings = {finding.setting for finding in file_findings(config) if finding.severity is Severity.ERROR}
    assert settings == {"speculative_model"}


def test_a_missing_adapter_is_named_by_its_own_setting() -> None:
    config = EndpointConfig(
        model=str(sample_model.path()), lora_modules={"a": "/no/adapter"}, instance="ml.trn1.2xlarge"
    )
    found = next(finding for finding in file_findings(config) if "/no/adapter" in finding.why)
    assert (found.setting, "MODEL" in found.why) == ("lora_modules", False)


@pytest.mark.parametrize(
    "settings",
    [
        {"engine_args": {"tokenizer": f"/{'x' * 300}"}},
        {"engine_args": {"tokenizer": f"/opt/ml/model/{'x' * 300}"}},
        {"speculative_model": f"/{'x' * 300}", "speculation": "eagle", "instance": "ml.trn1.2xlarge"},
        {"lora_modules": {"a": f"/{'x' * 300}"}, "enable_lora": True, "instance": "ml.trn1.2xlarge"},
        {"neuron_config": {"lora_ckpt_json": f"/{'x' * 300}"}, "line": "nxdi-0.16", "instance": "ml.trn1.2xlarge"},
    ],
    ids=str,
)
def test_nothing_is_at_a_path_that_is_too_long(settings: dict[str, Any]) -> None:
    config = EndpointConfig(model=str(sample_model.path()), **settings)
    assert any("x" * 50 in finding.why for finding in with_files(examine_config(config, build=None)).findings)
