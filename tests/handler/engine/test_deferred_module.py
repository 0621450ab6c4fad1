"""A module that few requests need is imported at its first use, and then is the module itself."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.engine.engine_client.deferred_module import defer


@pytest.fixture
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with one heavy module, which is imported nowhere."""
    package = tmp_path / "deferred_example"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "heavy.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "deferred_example.heavy"
    for name in [name for name in sys.modules if name.startswith("deferred_example")]:
        del sys.modules[name]


def test_an_import_statement_does_not_load_the_module_and_an_attribute_does(heavy: str) -> None:
    defer((heavy,))
    import deferred_example.heavy as module  # type: ignore[import-not-found]  # the fixture makes it

    assert "ANSWER" not in vars(module)
    inspect.getmodule(inspect.currentframe())  # asks every module for its file
    assert "ANSWER" not in vars(sys.modules[heavy])
    assert module.ANSWER == 42
    assert importlib.import_module(heavy).ANSWER == 42
    assert Path(importlib.import_module(heavy).__file__ or "").name == "heavy.py"


@pytest.mark.parametrize("name", ["deferred_example.absent", "absent_package.absent"])
def test_a_module_that_is_not_installed_stays_an_import_error(heavy: str, name: str) -> None:
    defer((name,))
    with pytest.raises(ModuleNotFoundError, match="absent"):
        importlib.import_module(name)
