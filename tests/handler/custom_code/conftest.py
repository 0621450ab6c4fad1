"""Code of an owner, written to a model directory, over the scripted engine of tests/container."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import CodeReply, CodeRequest, CustomCode
from handler.custom_code.code_source import CodeSource, find_code
from handler.startup.custom_code_loading import load_code
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.loops import end_loop

NO_VARIABLES: Mapping[str, str] = {}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine()
    yield engine
    end_loop(engine.loop)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CodeSource]:
    """Writes a file of code into a model directory; what importing it changes is undone afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("inference", "model", "helper_of_hooks", "custom_code_handler"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def written(text: str, file: str = "code/inference.py", environ: Mapping[str, str] = NO_VARIABLES) -> CodeSource:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))
        source = find_code(EndpointConfig(), str(tmp_path), environ)
        assert source is not None
        return source

    return written


@pytest.fixture
def load(write: Callable[..., CodeSource], engine: ScriptedEngine) -> Callable[..., Any]:
    """Writes the code and loads it, over the scripted engine or none."""

    def loaded(
        text: str,
        file: str = "code/inference.py",
        *,
        with_engine: bool = True,
        environ: Mapping[str, str] = NO_VARIABLES,
    ) -> CustomCode:
        return load_code(write(text, file, environ), engine if with_engine else None)  # type: ignore[arg-type]  # a stand-in

    return loaded


@pytest.fixture
def ask() -> Callable[..., CodeReply]:
    def asked(
        code: CustomCode,
        body: bytes | str = b"{}",
        kind: str = "application/json",
        accept: str = "",
        **headers: str,
    ) -> CodeReply:
        sent = body.encode() if isinstance(body, str) else body
        outcome = code.invoke(CodeRequest(sent, headers, kind, accept, "request-1"))
        assert outcome is not None
        return outcome

    return asked
