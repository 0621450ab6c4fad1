"""Secret variables are known by their names, or by a password in an address."""

from __future__ import annotations

import pytest

from handler.artifacts.lease.log_redaction import redacted
from handler.config.secret_values import is_secret
from model_packaging.deployment.definition.environment import shown

SECRETS = {
    "HF_TOKEN": "hf_abcdefghijk",
    "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=abcdefgh",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer abc",
    "PIP_INDEX_URL": "https://me:s3cretpass@packages.example/simple",
    "HTTPS_PROXY": "http://proxyuser:s3cretpass@proxy:3128",
}
PLAIN = {
    "SM_VLLM_MAX_NUM_BATCHED_TOKENS": "2048",
    "TOKEN_GENERATION_BUCKETS": "[128]",
    "PIP_EXTRA_INDEX_URL": "https://packages.example/simple",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
}


@pytest.mark.parametrize(("name", "value"), SECRETS.items())
def test_a_secret_is_shown_nowhere(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert shown({"Environment": {name: value}}) == {"Environment": {name: "***"}}
    assert "s3cretpass" not in redacted(f"error at {value}", {name: value})


@pytest.mark.parametrize(("name", "value"), PLAIN.items())
def test_a_setting_is_shown(name: str, value: str) -> None:
    assert shown({name: value}) == {name: value}
