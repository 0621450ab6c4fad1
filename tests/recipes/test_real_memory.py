"""The estimate against what NxD Inference's own modules hold on one rank (make test-nxdi measures it again)."""

from __future__ import annotations

import pytest

from handler.neuron.memory.memory_estimate import estimate
from tests.recipes.memory_case import MemoryCase, measured

NEAR = 0.1
MEASURED = measured()
KINDS = {"weights": ("weights", "draft weights"), "kv_cache": ("KV cache", "draft KV cache")}


@pytest.mark.parametrize(("case", "sizes"), MEASURED, ids=[case.name for case, _ in MEASURED])
def test_it_is_near_the_modules(case: MemoryCase, sizes: dict[str, int]) -> None:
    found = estimate(case.facts, case.config, case.type, draft=case.draft)
    assert found is not None
    for kind, names in KINDS.items():
        stated = sum(part.size for part in found.parts if part.name in names)
        assert stated == pytest.approx(sizes[kind], rel=NEAR), kind


def test_every_recipe_of_the_line_and_fifty_random_configurations_were_measured() -> None:
    names = [case.name for case, _ in MEASURED]
    assert sum(name.startswith("random ") for name in names) == 50
    assert sum(case.settings is None for case, _ in MEASURED) == 14
