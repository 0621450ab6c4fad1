"""What on-device sampling honours, without an engine."""

from __future__ import annotations

from typing import Any

import pytest
from neuron_stand_in.nxdi.sampling_config import sampling_config

DRAWS = 400
DYNAMIC: dict[str, Any] = {"dynamic": True}


def tokens(config: dict[str, Any], top_k: int = 0, top_p: float = 1.0, temperature: float = 1.0) -> set[int]:
    """The tokens that many draws from 300 equally likely ones give; token 299 is likelier than each other."""
    import torch
    from neuron_stand_in.device_draw import draw

    logits = torch.zeros(DRAWS, 300)
    logits[:, 299] = 1.0
    full = {"dtype": torch.float32}
    drawn = draw(
        logits,
        torch.full((DRAWS,), top_k),
        torch.full((DRAWS,), top_p, **full),
        torch.full((DRAWS,), temperature, **full),
        sampling_config(config) or {},
    )
    return set(drawn.tolist())


def test_temperature_0_is_greedy() -> None:
    assert tokens(DYNAMIC, temperature=0.0) == {299}


def test_top_k_and_top_p_are_honoured() -> None:
    assert tokens(DYNAMIC, top_k=1) == {299}
    assert len(tokens(DYNAMIC, top_k=3)) == 3
    assert tokens(DYNAMIC, top_p=0.001) == {299}
    assert tokens(DYNAMIC, temperature=0.01) == {299}
    assert len(tokens(DYNAMIC, temperature=5.0)) > 50


@pytest.mark.parametrize(("asked", "most"), [({}, 256), ({"global_topk": 8}, 8), ({"global_topk": 1000}, 256)])
def test_top_k_is_clamped(asked: dict[str, Any], most: int) -> None:
    from neuron_stand_in.device_draw import limit

    assert limit(sampling_config(asked) or {}) == most
    for top_k in (0, 299):
        assert len(tokens({**DYNAMIC, **asked}, top_k=top_k, temperature=50.0)) <= most


def test_a_configuration_without_dynamic_is_greedy_for_everyone() -> None:
    assert tokens({"global_topk": 64}, temperature=5.0) == {299}


def test_deterministic_draws_the_same_for_everyone() -> None:
    assert len(tokens({**DYNAMIC, "deterministic": True}, temperature=5.0)) == 1
