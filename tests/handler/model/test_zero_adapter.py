"""NxDI's plugin ends its engine at a request without an adapter, so requests to the model itself have one of zeros."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.model.companions import fetch_companions
from handler.neuron.lines.lora import BASE_ADAPTER, adapter_file

ADAPTER = str(sample_model.adapter_path())


def listed(config: EndpointConfig) -> dict[str, dict[str, str]]:
    fetch_companions(config)
    document: dict[str, dict[str, str]] = json.loads(Path(adapter_file(config)).read_text())
    return document


def test_the_plugin_gets_an_adapter_of_zeros_like_the_first_one(tmp_path: Path) -> None:
    from safetensors.torch import load_file  # it imports torch: not in every process that collects

    document = listed(EndpointConfig(scratch=tmp_path, lora_modules={"pirate": ADAPTER}))
    for paths in ("lora-ckpt-paths", "lora-ckpt-paths-cpu"):
        assert list(document[paths]) == [BASE_ADAPTER, "pirate"]
    zeros = Path(document["lora-ckpt-paths"][BASE_ADAPTER])
    assert json.loads((zeros / "adapter_config.json").read_text())["r"] == 8
    made, real = (load_file(place / "adapter_model.safetensors") for place in (zeros, Path(ADAPTER)))
    assert list(made) == list(real)
    for name, tensor in made.items():
        assert tensor.shape == real[name].shape
        assert not tensor.any()


@pytest.mark.parametrize("limits", [{"max_loras": 1}, {"max_loras": 2, "engine_args": {"max_cpu_loras": 1}}])
def test_without_room_there_is_none(limits: dict[str, object], tmp_path: Path) -> None:
    config = EndpointConfig(scratch=tmp_path, lora_modules={"pirate": ADAPTER}, **limits)  # type: ignore[arg-type]
    assert list(listed(config)["lora-ckpt-paths-cpu"]) == ["pirate"]
