"""`neuron-endpoint accuracy` against the endpoint, through the gateway: a reference and its comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.model_packaging.command import run

pytestmark = pytest.mark.engine


@pytest.fixture
def reference(gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The endpoint's own tokens and log probabilities of two prompts."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", gateway)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What does /ping mean?\n\nThe container\n")
    saved = accuracy(
        "--save", str(tmp_path / "known.json"), "--prompts", str(prompts), "--max-tokens", "8", "--logprobs"
    )
    assert saved.exit_code == 0, saved.output
    return tmp_path / "known.json"


def accuracy(*words: str) -> Result:
    return run("accuracy", "sample", *words)


def test_equal_tokens_are_a_success(reference: Path) -> None:
    result = accuracy("--reference", str(reference), "--logprobs")
    assert result.exit_code == 0, result.output
    assert "8 of 8 tokens are equal, log probabilities within 0.0" in result.output
    assert "100% of the tokens are equal" in result.output


def test_another_token_ends_the_equal_ones(reference: Path) -> None:
    document = json.loads(reference.read_text())
    document["runs"][0]["token_ids"][2] += 1
    reference.write_text(json.dumps(document))
    result = accuracy("--reference", str(reference), "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [row["equal"] for row in found["prompts"]] == [2, 8]
    assert found["share"] == 0.625
    assert found["accurate"] is False
    assert accuracy("--reference", str(reference), "--least", "0.6").exit_code == 0


def test_log_probabilities_may_differ_by_the_tolerance_only(reference: Path) -> None:
    document = json.loads(reference.read_text())
    document["runs"][1]["logprobs"][3] -= 0.5
    reference.write_text(json.dumps(document))
    assert accuracy("--reference", str(reference), "--logprobs").exit_code == 1
    assert accuracy("--reference", str(reference), "--logprobs", "--tolerance", "0.6").exit_code == 0
    assert accuracy("--reference", str(reference)).exit_code == 0


def test_half_a_command_and_another_file_are_usage_errors(reference: Path, tmp_path: Path) -> None:
    assert accuracy().exit_code == 2
    other = tmp_path / "other.json"
    other.write_text("[]")
    result = accuracy("--reference", str(other))
    assert result.exit_code == 2
    assert "--save" in result.output
