"""What an adapter makes of a generation for vLLM, and of vLLM's errors. No engine is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")
from handler.engine.engine_client.client_adapter import SAMPLING_DEFAULTS, ClientAdapter
from handler.engine.generation.generation import Sampling

pytestmark = pytest.mark.engine


class PlainAdapter(ClientAdapter):
    """An adapter of a model with its own defaults, without a client."""

    dead = ()

    def __init__(self, **own: float) -> None:
        self.facts: Any = SimpleNamespace(sampling_defaults={**SAMPLING_DEFAULTS, **own}, grammars=False)


def test_a_parameter_that_is_not_given_is_the_models_own() -> None:
    """vLLM 0.32 and later read the last two of generation_config.json, too."""
    own = {"top_p": 0.5, "presence_penalty": 0.5, "frequency_penalty": -0.5}
    for given, expected in (({}, own), (dict.fromkeys(own, 1), dict.fromkeys(own, 1)), ({"presence_penalty": 0}, None)):
        params = PlainAdapter(**own).sampling_params(Sampling(**given), 9, False)
        assert {name: getattr(params, name) for name in own} == (expected or {**own, **given})
    plain = PlainAdapter().sampling_params(Sampling(), 9, False)
    assert (plain.presence_penalty, plain.frequency_penalty, plain.repetition_penalty) == (0, 0, 1)
