"""A model whose configuration would run code is refused with the file and the key, unless the endpoint trusts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.model.model_source import fetch_model
from tests.small_model import write_small_model

LIGHTGLUE = {
    "model_type": "lightglue",
    "keypoint_detector_config": {"model_type": "superpoint", "auto_map": {"AutoConfig": "evil.Config"}},
}


def model(directory: Path, file: str = "config.json", **keys: Any) -> EndpointConfig:
    (directory / file).parent.mkdir(parents=True, exist_ok=True)
    write_small_model(directory)
    known = json.loads((directory / file).read_text()) if (directory / file).is_file() else {}
    (directory / file).write_text(json.dumps(known | keys))
    return EndpointConfig(model=str(directory))


@pytest.mark.parametrize(
    ("file", "keys", "named"),
    [
        ("config.json", {"trust_remote_code": True}, "config.json has trust_remote_code"),
        (
            "config.json",
            {**LIGHTGLUE, "keypoint_detector_config": {"trust_remote_code": True}},
            "config.json has keypoint_detector_config.trust_remote_code",
        ),
        (
            "tokenizer_config.json",
            {"a": [{"trust_remote_code": 1}]},
            r"has a\[0\].trust_remote_code",
        ),
        ("draft/config.json", {"trust_remote_code": "yes"}, "draft/config.json has trust_remote_code"),
        ("config.json", {"_attn_implementation": "someone/kernel"}, "config.json has _attn_implementation"),
        ("config.json", {"_attn_implementation_internal": "someone/kernel"}, "has _attn_implementation_internal"),
        ("config.json", {"attn_implementation": {"text_config": "a/b"}}, "has attn_implementation.text_config"),
        ("config.json", {"architectures": ["KimiK25ForConditionalGeneration"]}, "architectures KimiK25"),
        ("config.json", {"text_config": {"attn_implementation": "a/b@v1:c"}}, "text_config.attn_implementation"),
    ],
)
def test_what_would_run_code_is_refused_with_its_file_and_key(
    tmp_path: Path, file: str, keys: dict[str, Any], named: str
) -> None:
    config = model(tmp_path, file, **keys)
    with pytest.raises(SettingError, match=named) as raised:
        fetch_model(config)
    assert "ENDPOINT_TRUST_REMOTE_CODE=true" in raised.value.message


def test_an_endpoint_that_trusts_the_model_takes_it(tmp_path: Path) -> None:
    model(tmp_path, trust_remote_code=True)
    assert fetch_model(EndpointConfig(model=str(tmp_path), trust_remote_code=True)).path == str(tmp_path)


@pytest.mark.parametrize(
    "keys",
    [
        {"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}},
        {"trust_remote_code": False, "_attn_implementation": "eager"},
    ],
)
def test_what_runs_nothing_is_taken(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert fetch_model(model(tmp_path, **keys))


def test_a_configuration_nested_without_end_is_refused(tmp_path: Path) -> None:
    config = model(tmp_path)
    (tmp_path / "config.json").write_text('{"a":' * 100 + "1" + "}" * 100)
    with pytest.raises(SettingError, match="nested more than 64 deep"):
        fetch_model(config)


def test_the_name_of_a_key_is_bounded(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"trust_remote_code": True}
    for _ in range(20):
        inner = {"k" * 10_000: [inner]}
    with pytest.raises(SettingError) as raised:
        fetch_model(model(tmp_path, **inner))
    assert "Python code run" in str(raised.value)
    assert len(str(raised.value)) < 1000
