"""Code with the decorators of `model_hosting_container_standards`, built by the package itself."""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import INVOCATIONS, PING, CodeReply, CodeRequest
from handler.custom_code.code_source import CodeKind, find_code
from handler.errors import EndpointError, SettingError
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.waiting import eventually

Load = Callable[..., Any]
IMPORTS = """import model_hosting_container_standards.sagemaker as standards
from fastapi import HTTPException, Request, Response
"""
ECHO = """
@standards.custom_invocation_handler
{decorators}
async def mine(raw_request: Request):
    return await raw_request.json()
"""


@pytest.fixture(autouse=True)
def fresh_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package keeps its handlers for a process. A container has one model, and tests have many."""
    for name in ("SAGEMAKER_MODEL_PATH", "CUSTOM_SCRIPT_FILENAME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    for name in [name for name in sys.modules if name.startswith("model_hosting_container_standards")]:
        del sys.modules[name]


def ask(code: Any, body: object = None, method: str = "POST", path: str = "/invocations", **headers: str) -> CodeReply:
    given = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    sent = json.dumps(body).encode()
    reply = code.invoke(CodeRequest(sent, given, "application/json", "", "1", method, path))
    assert isinstance(reply, CodeReply)
    return reply


def document(reply: CodeReply) -> Any:
    assert isinstance(reply.body, bytes)
    return json.loads(reply.body)


def readme_example(title: str) -> str:
    """A block of code of the package's README, as it is."""
    text = metadata("model-hosting-container-standards")["Description"]
    return text.split(title)[1].split("```python\n")[1].split("```")[0]


def test_the_readmes_example_for_customers_runs_unchanged(load: Load) -> None:
    code = load(readme_example("### 2. Customer Script Customization"), "model.py")
    assert code.answers(*INVOCATIONS)
    assert code.answers(*PING)
    assert document(ask(code, {"a": 1})) == {"result": "processed"}
    ping = ask(code, None, "GET", "/ping")
    assert (ping.status, ping.body) == (200, b"OK")


def test_the_readmes_example_of_middleware_runs_unchanged(load: Load) -> None:
    example = readme_example("### Adding Middleware to vLLM Integration")
    code = load(f"from fastapi import Request, Response\n{example}", "model.py")  # imported by the example before it
    reply = ask(code, {})
    assert (reply.headers["x-rate-limited"], reply.headers["x-processed-by"]) == ("true", "model-hosting-standards")
    assert ask(code, None, "GET", "/ping").status == 201


def test_functions_are_found_by_their_names(load: Load) -> None:
    code = load("async def custom_sagemaker_ping_handler(): return {'status': 'healthy'}", "model.py")
    assert document(ask(code, None, "GET", "/ping")) == {"status": "healthy"}
    assert not code.answers(*INVOCATIONS)  # the endpoint does, with its fast path


def test_variables_name_functions(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"CUSTOM_FASTAPI_INVOCATION_HANDLER": "model.py:other"}
    monkeypatch.setenv(*next(iter(variables.items())))
    text = "from fastapi import Request\nasync def other(request: Request): return [1]\n"
    code = load(text, "model.py", environ=variables)
    assert document(ask(code)) == [1]


@pytest.mark.parametrize(
    ("decorators", "expected"),
    [
        ('@standards.inject_adapter_id("model")', {"model": "lora-1"}),
        ('@standards.inject_adapter_id("model", append=True, separator=":")', {"model": "base:lora-1"}),
        ('@standards.stateful_session_manager("session.id")', {"model": "base"}),
    ],
)
def test_adapters_are_injected(load: Load, decorators: str, expected: object) -> None:
    code = load(IMPORTS + ECHO.format(decorators=decorators), "model.py")
    headers = {"X_Amzn_SageMaker_Adapter_Identifier": "lora-1"}
    assert document(ask(code, {"model": "base"}, **headers)) == expected


def test_sessions_are_opened_used_and_closed(load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAGEMAKER_ENABLE_STATEFUL_SESSIONS", "true")
    monkeypatch.setenv("SAGEMAKER_SESSIONS_PATH", str(tmp_path / "sessions"))
    code = load(IMPORTS + ECHO.format(decorators='@standards.stateful_session_manager("session_id")'), "model.py")
    opened = ask(code, {"requestType": "NEW_SESSION"})
    session = opened.headers["x-amzn-sagemaker-new-session-id"].split(";")[0]
    assert document(ask(code, {"a": 1}, X_Amzn_SageMaker_Session_Id=session)) == {"a": 1, "session_id": session}
    closed = ask(code, {"requestType": "CLOSE"}, X_Amzn_SageMaker_Session_Id=session)
    assert closed.headers["x-amzn-sagemaker-closed-session-id"] == session
    assert ask(code, {"a": 1}, X_Amzn_SageMaker_Session_Id=session).status == 400


def test_adapters_are_loaded_by_the_codes_own_handlers(load: Load) -> None:
    code = load(
        IMPORTS
        + """
@standards.register_load_adapter_handler(request_shape={"lora_name": "body.name"}, response_shape={})
async def load(request, raw_request: Request):
    return Response(request.lora_name)
""",
        "model.py",
    )
    assert code.answers("POST", "/adapters")
    assert ask(code, {"name": "one", "src": "s3://adapters/one"}, path="/adapters").status == 200
    assert not code.answers("GET", "/adapters")


@pytest.mark.parametrize("body", [{"prompt": "a|b"}, {"prompt": "a|b", "stream": True}])
def test_middleware_wraps_the_engines_own_reply(load: Load, body: dict[str, Any]) -> None:
    code = load(
        IMPORTS
        + """
from model_hosting_container_standards.common.fastapi.middleware import output_formatter
@output_formatter
async def mark(response):
    response.headers["x-mark"] = "1"
    return response
""",
        "model.py",
    )
    assert code.answers(*INVOCATIONS)
    reply = ask(code, body)
    assert (reply.status, reply.headers["x-mark"]) == (200, "1")
    whole = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
    if body.get("stream"):
        assert whole.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(whole)["choices"][0]["text"] == "ab"
    bad = ask(code, {"prompt": 1})
    assert (bad.status, document(bad)["error"]["param"]) == (400, "prompt")


def test_the_engine_gets_as_many_requests_at_once_as_are_admitted(load: Load, engine: ScriptedEngine) -> None:
    """anyio, which runs the default handler in threads, has 40 of them."""
    middleware = "from model_hosting_container_standards.common.fastapi.middleware import input_formatter\n"
    code = load(IMPORTS + middleware + "@input_formatter\nasync def keep(request): return request\n", "model.py")
    with ThreadPoolExecutor(50) as pool:
        replies = [pool.submit(ask, code, {"prompt": "a|<gate:all>"}) for _ in range(50)]
        try:
            eventually(lambda: engine.begun == 50, 20)
        finally:
            engine.open("all")
        assert {reply.result().status for reply in replies} == {200}


@pytest.mark.parametrize("same_file", [True, False])
def test_hooks_stand_beside_decorators(load: Load, tmp_path: Path, same_file: bool) -> None:
    ping = IMPORTS + "\n@standards.custom_ping_handler\nasync def ping(): return 'mine'\n"
    hooks = "import sys\nLOADED = sys.modules.setdefault('helper_of_hooks', [])\nLOADED.append(1)\n"
    hooks += "def predict_fn(data, model): return {'loaded': len(LOADED)}\n"
    if same_file:
        code = load(hooks + ping)
    else:
        (tmp_path / "model.py").write_text(ping)
        code = load(hooks)
    assert document(ask(code, {})) == {"loaded": 1}
    assert document(ask(code, None, "GET", "/ping")) == "mine"


def test_hooks_beside_decorators_get_the_content_type_as_it_was_sent(load: Load) -> None:
    """A multipart body cannot be parsed without its boundary."""
    ping = "@standards.custom_ping_handler\nasync def ping(): return 'mine'\n"
    code = load(f"{IMPORTS}{ping}def transform_fn(model, data, content_type, accept): return content_type")
    header = "multipart/form-data; boundary=AbC"
    assert ask(code, {}, Content_Type=header).body == header.encode()


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise HTTPException(409, 'not now')", 409, "not now"),
        ("raise KeyError('secret of mine')", 500, "POST /invocations raised KeyError: 'secret of mine'"),
    ],
)
def test_errors_are_openais(load: Load, text: str, status: int, said: str) -> None:
    code = load(
        IMPORTS + f"@standards.custom_invocation_handler\nasync def mine(request: Request):\n    {text}\n", "model.py"
    )
    reply = ask(code, {})
    assert (reply.status, document(reply)["error"]["message"]) == (status, said)


def test_a_handler_that_exits_fails_its_own_request_only(load: Load) -> None:
    text = "if await request.body() == b'1': raise SystemExit(3)\n    return {'answered': True}"
    code = load(
        IMPORTS + f"@standards.custom_invocation_handler\nasync def mine(request: Request):\n    {text}\n", "model.py"
    )
    with pytest.raises(EndpointError, match="POST /invocations raised SystemExit: 3"):
        ask(code, 1)
    assert document(ask(code, {})) == {"answered": True}


def test_a_stream_is_sent_piece_by_piece_and_ends_with_its_client(load: Load) -> None:
    code = load(
        IMPORTS
        + """
from fastapi.responses import StreamingResponse
import sys
CLOSED = sys.modules.setdefault("helper_of_hooks", [])
async def pieces():
    try:
        while True:
            yield b"more"
    finally:
        CLOSED.append(1)

@standards.custom_invocation_handler
async def mine(request: Request):
    return StreamingResponse(pieces(), media_type="text/plain")
""",
        "model.py",
    )
    body = ask(code, {}).body
    assert not isinstance(body, bytes)
    assert [next(body), next(body)] == [b"more", b"more"]
    body.close()  # type: ignore[attr-defined]  # a generator
    eventually(lambda: (gc.collect(), bool(sys.modules["helper_of_hooks"]))[1])


WITH_BACKGROUND = """
from starlette.background import BackgroundTasks
from starlette.responses import StreamingResponse
import asyncio
import helper_of_hooks as helper

@standards.custom_invocation_handler
async def mine(raw_request: Request):
    await raw_request.body()

    async def first():
        await asyncio.to_thread(helper.gate.wait)
        helper.steps.append(await raw_request.receive())

    tasks = BackgroundTasks()
    tasks.add_task(first)
    tasks.add_task(helper.steps.append, "second")
    tasks.add_task(helper.fail)
    return {reply}
"""


@pytest.mark.parametrize(
    "reply", ["Response(b'ab', background=tasks)", "StreamingResponse(iter([b'a', b'b']), background=tasks)"]
)
def test_what_runs_after_the_reply_runs_to_its_end(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reply: str
) -> None:
    gate, steps = threading.Event(), list[object]()

    def fail() -> None:
        raise ValueError("no audit record")

    helper = SimpleNamespace(gate=gate, steps=steps, fail=fail)
    monkeypatch.setitem(sys.modules, "helper_of_hooks", helper)
    code = load(IMPORTS + WITH_BACKGROUND.replace("{reply}", reply), "model.py")
    body = ask(code, {}).body
    assert (body if isinstance(body, bytes) else b"".join(body)) == b"ab"
    assert steps == []
    gate.set()
    eventually(lambda: "no audit record" in caplog.text)
    assert steps == [{"type": "http.disconnect"}, "second"]


def test_code_that_cannot_be_loaded_ends_the_start(load: Load) -> None:
    with pytest.raises(SettingError, match=r"model\.py: loading it raised .*division by zero"):
        load(IMPORTS + "1 / 0", "model.py")


def test_a_decorated_hook_file_and_a_decorated_script_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for file in ("model.py", "code/inference.py"):
        (tmp_path / file).write_text(IMPORTS)
    with pytest.raises(SettingError, match="Keep them in one of the two files"):
        find_code(EndpointConfig(), str(tmp_path), {})
    with pytest.raises(SettingError, match="CUSTOM_SCRIPT_FILENAME: there is no"):
        find_code(EndpointConfig(), str(tmp_path), {"CUSTOM_SCRIPT_FILENAME": "other.py"})


def test_the_log_keeps_its_level(load: Load) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    try:
        load(IMPORTS, "model.py")
        assert root.level == logging.INFO
    finally:
        root.setLevel(before)


def test_its_kind_is_seen_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("from model_hosting_container_standards import sagemaker\nraise SystemExit")
    source = find_code(EndpointConfig(), str(tmp_path), {})
    assert source is not None
    assert source.kind is CodeKind.STANDARDS
