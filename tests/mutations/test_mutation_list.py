"""Each mutation can still be applied. `python -m tests.mutations.mutation_run` applies them and runs their tests."""

from __future__ import annotations

import pytest

from tests.mutations.mutation_list import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_its_text_occurs_once(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert all((ROOT / tests).exists() for tests in mutation.tests)


def test_names_are_unique() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
