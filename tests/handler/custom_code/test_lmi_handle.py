"""LMI's model.py with handle(inputs), as it is written for djl_python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handler.custom_code.code_contract import CodeReply, CodeRequest
from handler.errors import EndpointError, SettingError

Load = Callable[..., Any]
Ask = Callable[..., CodeReply]

SERVICE = """
from djl_python import Input, Output
from djl_python.inputs import Input as SameInput

class Service:
    def __init__(self):
        self.loaded = 0
    def load(self, properties):
        self.loaded += 1
        self.model_dir = properties["model_dir"]
service = Service()

KEYWORD handle(inputs: Input) -> Output:
    assert SameInput is Input
    if inputs.is_empty():
        service.load(inputs.get_properties())
        return None
    document = inputs.get_as_json()
    if "leave" in document:
        return None
    if "fail" in document:
        raise RuntimeError("own failure")
    if "refuse" in document:
        return Output().error("no such thing", 409)
    if "stream" in document:
        return Output().add_stream_content(iter(["a", "b"]))
    if "own" in document:
        return Output().add_property("Content-Type", "text/x").add_stream_content(
            iter("ab"), output_formatter=lambda item: f"<{item}>")
    text = inputs.engine.generate(document["inputs"]).text
    return Output().add_as_json({"text": text, "loaded": service.loaded, "type": inputs.get_property("content-type")})
"""


@pytest.fixture(params=["def", "async def"])
def code(load: Load, request: pytest.FixtureRequest) -> Any:
    return load(SERVICE.replace("KEYWORD", request.param), "model.py")


def test_a_handler_of_djl_python_runs_as_it_is(code: Any, ask: Ask) -> None:
    for _ in range(2):
        outcome = ask(code, '{"inputs": "a|b"}', **{"Content-Type": "application/json"})
        assert outcome.content_type == "application/json"
        assert json.loads(outcome.body) == {"text": "ab", "loaded": 1, "type": "application/json"}  # type: ignore[arg-type]


def test_its_streams(code: Any, ask: Ask) -> None:
    lines = ask(code, '{"stream": 1}')
    assert lines.content_type == "application/jsonlines"
    assert [json.loads(line) for line in lines.body] == [{"outputs": "a"}, {"outputs": "b"}]  # type: ignore[arg-type]
    own = ask(code, '{"own": 1}')
    assert (own.content_type, list(own.body)) == ("text/x", [b"<a>", b"<b>"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def handle(inputs): return (each for each in 'ab')", [{"outputs": "a"}, {"outputs": "b"}]),
        ("async def handle(inputs):\n    yield 'a'\n    yield 'b'", [{"outputs": "a"}, {"outputs": "b"}]),
        ("from djl_python import Output\ndef handle(inputs): return [Output().add('{}')]", [{}]),
        (
            "import datetime\ndef handle(inputs): return {'a': [datetime.datetime(1, 1, 1)]}",
            [{"a": ["0001-01-01 00:00:00"]}],
        ),
    ],
)
def test_what_it_returns_without_an_output(load: Load, ask: Ask, text: str, expected: list[Any]) -> None:
    body = ask(load(text, "model.py")).body
    assert [json.loads(line) for line in ([body] if isinstance(body, bytes) else body)] == expected


def test_what_it_returns_and_is_no_json_is_an_error_and_not_its_repr(load: Load, ask: Ask) -> None:
    with pytest.raises(TypeError, match="'object' is no type of JSON"):
        ask(load("def handle(inputs): return {'a': object()}", "model.py"))


def test_its_errors(code: Any, ask: Ask) -> None:
    refused = ask(code, '{"refuse": 1}')
    assert refused.status == 409
    assert json.loads(refused.body) == {"code": 409, "message": "invoke handler failure", "error": "no such thing"}  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="handle raised RuntimeError: own failure"):
        ask(code, '{"fail": 1}')


def test_none_leaves_the_request_to_the_endpoint(code: Any) -> None:
    assert code.invoke(CodeRequest(b'{"leave": 1}', {}, "application/json", "")) is None


def test_a_first_call_that_fails_ends_the_start(load: Load) -> None:
    with pytest.raises(SettingError, match="OSError: no weights"):
        load("def handle(inputs):\n    raise OSError('no weights')\n", "model.py")


def test_an_installed_djl_python_has_these_classes_and_its_other_modules(
    load: Load, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("djl_python", "djl_python.inputs", "djl_python.outputs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package = tmp_path / "site" / "djl_python"
    package.mkdir(parents=True)
    (package / "outputs.py").write_text(
        "class Output:\n    properties, code = {}, 200\n    def add(self, value): return self\n"
    )
    (package / "__init__.py").write_text("from djl_python import inputs, outputs\nOutput = outputs.Output")
    (package / "inputs.py").write_text("class Input: pass")
    (package / "chat.py").write_text("NAME = 'own'")
    monkeypatch.syspath_prepend(package.parent)
    own = """
    import djl_python
    from djl_python.chat import NAME
    from djl_python.outputs import Output
    def handle(inputs: djl_python.inputs.Input): return djl_python.Output().add(NAME) and Output().add(NAME)
    """
    assert ask(load(own, "model.py")).body == b"own"
