"""Network isolation: settings that need the network are rejected before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.config.loading.config_loader import load
from handler.config.problems import SettingErrors

ISOLATED = {"ENDPOINT_NETWORK_ISOLATION": "true", "ENDPOINT_MODEL": "/opt/ml/model"}


def nothing(location: str) -> bytes | None:
    assert "://" not in location, "nothing is fetched"
    return None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT_MODEL", "s3://bucket/model"),
        ("ENDPOINT_MODEL", "org/name"),
        ("ENDPOINT_ARTIFACT_STORE", "s3://bucket/store"),
        ("ENDPOINT_ARTIFACT_STORE", "S3://bucket/store"),
        ("NEURON_COMPILED_ARTIFACTS", "s3://bucket/compiled"),
        ("ENDPOINT_ARTIFACT_SIGNING_KEY", "arn:aws:kms:us-east-1:1:key/a"),
        ("ENDPOINT_SPECULATIVE_MODEL", "org/draft"),
        ("ENDPOINT_LORA_MODULES", "a=s3://bucket/adapter"),
        ("SM_VLLM_TOKENIZER", "org/name"),
        ("SM_VLLM_TOKENIZER", "s3://bucket/tokenizer"),
        ("SM_VLLM_HF_CONFIG_PATH", "org/name"),
        ("SM_VLLM_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces"),
        ("SM_VLLM_OTLP_TRACES_ENDPOINT", "collector:4317"),
        ("SM_VLLM_GENERATION_CONFIG", "org/name"),
        ("SM_VLLM_SPECULATIVE_CONFIG", '{"method": "mtp", "model": "org/draft", "num_speculative_tokens": 1}'),
        ("SM_VLLM_MODEL_LOADER_EXTRA_CONFIG", '{"tensorizer_uri": "s3://bucket/tensors"}'),
        ("NEURON_COMPILE_CACHE_URL", "s3://bucket/cache"),
        ("ENDPOINT_NEURON_CONFIG", '{"quantized_checkpoints_path": "s3://bucket/q"}'),
        ("ENDPOINT_REQUIREMENTS", "download"),
        ("ENDPOINT_MODEL", "x" * 300),
        ("ENDPOINT_SPECULATIVE_MODEL", "x" * 300),
        ("ENDPOINT_LORA_MODULES", f"a={'x' * 300}"),
        ("ENDPOINT_CONFIG", "s3://bucket/endpoint.yaml"),
    ],
)
def test_what_is_elsewhere_fails_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingErrors) as caught:
        load({**ISOLATED, name: value}, fetch=nothing)
    assert name in caught.value.message
    assert "ENDPOINT_NETWORK_ISOLATION" in caught.value.message


def test_what_is_here_does_not(tmp_path: Path) -> None:
    environ = {
        "ENDPOINT_NETWORK_ISOLATION": "true",
        "ENDPOINT_MODEL": str(tmp_path),
        "ENDPOINT_ARTIFACT_STORE": f"file://{tmp_path}",
        "ENDPOINT_LORA_MODULES": f"a={tmp_path}",
        "SM_VLLM_TOKENIZER": str(tmp_path),
        "SM_VLLM_OTLP_TRACES_ENDPOINT": "localhost:4317",
        "SM_VLLM_GENERATION_CONFIG": "vllm",
        "SM_VLLM_SPECULATIVE_CONFIG": '{"method": "ngram_gpu", "num_speculative_tokens": 1}',
        "NEURON_COMPILE_CACHE_URL": "/tmp/cache",
    }
    assert load(environ, fetch=nothing).network_isolation


@pytest.mark.parametrize("text", ["8100", "8200-8100", "0-9", "8100-65536", "a-b", "8100-8199-8200", "٨-٩", ""])
def test_an_invalid_range_of_ports_is_an_error_with_the_setting(text: str) -> None:
    environ = {"SAGEMAKER_SAFE_PORT_RANGE": text}
    if not text:
        assert load(environ, fetch=nothing).safe_port_range is None
        return
    with pytest.raises(SettingErrors, match="SAGEMAKER_SAFE_PORT_RANGE"):
        load(environ, fetch=nothing)
