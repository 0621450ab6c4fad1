"""A plan's engine arguments, parsed by vLLM's own parser."""

from __future__ import annotations

import sys

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.engine.engine_client.engine_arguments import engine_args

pytestmark = pytest.mark.engine
MODEL = str(sample_model.path())


def test_a_level_of_optimization_is_on_the_command_line_where_the_native_plugin_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["serve"])
    engine_args({"model": MODEL, "optimization_level": "3"}, EndpointConfig())
    engine_args({"model": MODEL, "optimization_level": "2"}, EndpointConfig())
    assert sys.argv == ["serve", "--optimization-level=2"]
    engine_args({"model": MODEL}, EndpointConfig())
    assert sys.argv == ["serve"]
