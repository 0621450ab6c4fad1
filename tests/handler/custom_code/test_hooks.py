"""code/inference.py: what each hook is called with, what a client gets, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest

from handler.config.loading import config_loader
from handler.custom_code.code_contract import CodeReply
from handler.custom_code.code_source import CodeSource
from handler.custom_code.engine_model import REQUEST_DEADLINE
from handler.custom_code.hook_caller import HookCaller
from handler.errors import DeadlineExceeded, EndpointError, SettingError
from handler.schemas.tgi_lmi.request_options import RequestOptions
from handler.startup.custom_code_loading import load_code
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.loops import end_loop, on_loop
from tests.handler.waiting import eventually

Load = Callable[..., Any]
Ask = Callable[..., CodeReply]
OWN_MODEL = "def model_fn(model_dir): return 'own model'\n"


def refused(ask: Ask, code: Any, *arguments: Any, **named: Any) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        ask(code, *arguments, **named)
    return caught.value


def pieces(outcome: CodeReply) -> list[bytes]:
    assert not isinstance(outcome.body, bytes)
    return list(outcome.body)


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()"])
@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_code_that_exits_fails_its_own_request_only(load: Load, ask: Ask, keyword: str, raised: str) -> None:
    """Either would end the event loop that it leaves: the engine's, or that of all async hooks."""
    body = f"""
    if 'whole' in data:
        raise {raised}
    {keyword} items():
        yield 1
        raise {raised}
    return items() if 'stream' in data else 'answered'
"""
    code = load(f"{OWN_MODEL}{keyword} predict_fn(data, model):{body}")
    words = f"predict_fn raised {raised.partition('(')[0]}"
    assert refused(ask, code, '{"whole": 1}').message.startswith(words)
    stream = ask(code, '{"stream": 1}').body
    assert isinstance(stream, Iterator)
    assert next(stream) == b"1\n"
    assert json.loads(next(stream))["error"]["message"].startswith(words)
    with pytest.raises(EndpointError, match=words):
        next(stream)
    assert ask(code, "{}").body == b'"answered"'


CONTEXT_FORMS = {
    "without": ("", ""),
    "with": (", context", "assert context.get_request_header(0, 'x-from') == 'test'"),
    "with a default": (", context=None", "assert context.get_request_id() == 'request-1'"),
}


@pytest.mark.parametrize("form", [*CONTEXT_FORMS])
@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_every_hook_in_its_place(load: Load, ask: Ask, form: str, keyword: str) -> None:
    parameter, check = CONTEXT_FORMS[form]
    code = load(
        f"""
        def model_fn(model_dir{parameter}): return "model"
        {keyword} input_fn(data, content_type{parameter}):
            {check}
            return ["in", data, content_type]
        {keyword} predict_fn(data, model{parameter}):
            {check}
            return [*data, model]
        {keyword} output_fn(prediction, accept{parameter}):
            {check}
            return "|".join([*prediction, accept]), "text/x"
        """
    )
    outcome = ask(code, "body", "text/csv", "text/y", **{"X-From": "test"})
    assert outcome == CodeReply(b"in|body|text/csv|model|text/y", "text/x")


@pytest.mark.parametrize("parameter", ["", ", context"])
def test_transform_fn_alone(load: Load, ask: Ask, parameter: str) -> None:
    code = load(
        OWN_MODEL
        + f"def transform_fn(model, data, content_type, accept{parameter}): return f'{{model}} {{data}}', accept"
    )
    assert ask(code, b"\xff", "application/x-own", "text/plain") == CodeReply(b"own model b'\\xff'", "text/plain")


def test_bytes_reach_a_hook_as_text_where_the_library_says_so(load: Load, ask: Ask) -> None:
    code = load(OWN_MODEL + "def transform_fn(model, data, content_type, accept): return type(data).__name__")
    assert ask(code, "é", "application/json").body == b"str"
    assert ask(code, "é", "text/csv; charset=utf-8").body == b"str"
    assert ask(code, "é", "text/plain").body == b"bytes"
    assert refused(ask, code, b"\xff", "application/json").status == 400


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "expected", "written"),
    [
        ("[1, 2]", "application/json", "", b"[2, 4]", "application/json"),
        ("[1, 2]", "application/json", "*/*", b"[2, 4]", "application/json"),
        ("[1, 2]", "application/json", "text/html, text/csv;q=0.5", b"2\n4\n", "text/csv"),
        ("[1, 2]", "application/json", "application/*", b"[2, 4]", "application/json"),
        ("[1, 2]", "application/json", "image/png, TEXT/CSV", b"2\n4\n", "text/csv"),
        ("[1, 2]", "application/json", "text/*", b"2\n4\n", "text/csv"),
        ("1,2", "text/csv", "application/json", b"[2, 4]", "application/json"),
        ("1,2", "Text/CSV; header=absent", "application/json", b"[2, 4]", "application/json"),
        ("[1, 2]", "application/json; charset=utf-8", "", b"[2, 4]", "application/json"),
    ],
)
def test_the_librarys_own_formats(
    load: Load, ask: Ask, body: str, content_type: str, accept: str, expected: bytes, written: str
) -> None:
    code = load(OWN_MODEL + "def predict_fn(data, model): return data * 2")
    outcome = ask(code, body, content_type, accept)
    assert (outcome.body, outcome.content_type) == (expected, written)


def test_a_reply_that_names_no_type_has_the_default_one(load: Load, ask: Ask) -> None:
    code = load(OWN_MODEL + "def transform_fn(model, data, content_type, accept): return '[]', None")
    assert ask(code).content_type == "application/json"


@pytest.mark.parametrize(("value", "written"), [("text/csv", "text/csv"), ("", "application/json")])
def test_the_type_of_a_reply_to_requests_that_name_none(
    load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch, value: str, written: str
) -> None:
    variable = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
    monkeypatch.setenv(variable, value)
    code = load(OWN_MODEL + "def predict_fn(data, model): return data")
    assert ask(code, "[1, 2]").content_type == written
    assert variable not in config_loader.load({variable: value}).unused  # `check` would say that it has no effect


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status"),
    [
        ("{", "application/json", "", 400),
        ("[" * 100_000, "application/json", "", 400),
        (b"\x93NUMPY nonsense", "application/x-npy", "", 400),
        ("1", "application/x-own", "", 415),
        ("[1]", "application/json", "image/png", 406),
    ],
)
def test_bad_input_is_the_callers_error_where_the_library_says_500(
    load: Load, ask: Ask, body: bytes | str, content_type: str, accept: str, status: int
) -> None:
    code = load(OWN_MODEL + "def predict_fn(data, model): return data")
    assert refused(ask, code, body, content_type, accept).status == status


def test_an_npy_body_brings_no_pickles(load: Load, ask: Ask, tmp_path: Any) -> None:
    code = load(OWN_MODEL + "def predict_fn(data, model): return data")
    numpy.save(tmp_path / "plain.npy", numpy.array([1, 2]))
    numpy.save(tmp_path / "pickle.npy", numpy.array([{"a": 1}], dtype=object))
    assert ask(code, (tmp_path / "plain.npy").read_bytes(), "application/x-npy").body == b"[1, 2]"
    assert refused(ask, code, (tmp_path / "pickle.npy").read_bytes(), "application/x-npy").status == 400


def test_what_a_hook_raises_is_a_500_with_its_type_and_message_and_no_traceback(
    load: Load, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    code = load(OWN_MODEL + "def predict_fn(data, model): raise KeyError('no such label')")
    error = refused(ask, code)
    assert error.status == 500
    assert error.message == "predict_fn raised KeyError: 'no such label'"
    assert "Traceback" in caplog.text
    assert "inference.py" in caplog.text


def test_the_librarys_errors_say_their_status(load: Load, ask: Ask) -> None:
    code = load(
        OWN_MODEL
        + "from sagemaker_inference.errors import GenericInferenceToolkitError as E\n"
        + "def predict_fn(data, model): raise E(422, 'too many labels', 'phrase')"
    )
    error = refused(ask, code)
    assert (error.status, error.message) == (422, "too many labels")
    assert error.document()["error"]["type"] == "invalid_request_error"


def test_a_predict_fn_that_is_missing_over_a_model_of_ones_own_is_said(load: Load, ask: Ask) -> None:
    assert "predict_fn" in refused(ask, load(OWN_MODEL)).message


def test_the_context_sets_the_reply(load: Load, ask: Ask) -> None:
    code = load(
        OWN_MODEL
        + """
def transform_fn(model, data, content_type, accept, context):
    context.set_response_status(202, "Accepted")
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "trace=" + context.get_request_id(0))
    context.set_response_content_type(0, "text/x")
    return "later"
"""
    )
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "trace=request-1"}
    assert ask(code) == CodeReply(b"later", "text/x", 202, headers)


# Loaded once, and safe under threads


def test_the_model_is_loaded_once_at_the_start(load: Load, ask: Ask) -> None:
    code = load(
        """
        calls = []
        def pre_model_fn(model_dir): calls.append("pre")
        def model_fn(model_dir): calls.append("model"); return calls
        def model_warmup_fn(model_dir, model): calls.append("warm-up"); assert model is calls
        def predict_fn(data, model): return list(model)
        """
    )
    with ThreadPoolExecutor(8) as pool:
        bodies = {bytes(outcome.body) for outcome in pool.map(lambda _: ask(code), range(16))}  # type: ignore[arg-type]
    assert bodies == {b'["pre", "model", "warm-up"]'}


def test_each_of_many_at_once_has_its_own_context(load: Load, ask: Ask) -> None:
    code = load(
        OWN_MODEL
        + """
import threading
barrier = threading.Barrier(4)
def input_fn(data, content_type, context): return context
def predict_fn(context, model, own):
    barrier.wait(20)
    assert context is own
    return context.get_request_header(0, "who")
"""
    )
    with ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(lambda who: ask(code, who=who).body, "abcd"))
    assert bodies == [b'"a"', b'"b"', b'"c"', b'"d"']


def test_async_hooks_run_beside_one_another(load: Load, ask: Ask) -> None:
    code = load(
        OWN_MODEL
        + """
import asyncio
waiting = []
async def predict_fn(data, model):
    waiting.append(1)
    while len(waiting) < 3:
        await asyncio.sleep(0.01)
    return "met"
"""
    )
    with ThreadPoolExecutor(3) as pool:
        assert [outcome.body for outcome in pool.map(lambda _: ask(code), range(3))] == [b'"met"'] * 3


# Streams


@pytest.mark.parametrize("keyword", ["def", "async def"])
@pytest.mark.parametrize(
    ("accept", "content_type", "expected"),
    [
        ("", "application/jsonlines", [b'{"n":0}\n', b'{"n":1}\n']),
        ("text/event-stream", "text/event-stream", [b'data: {"n":0}\n\n', b'data: {"n":1}\n\n']),
    ],
)
def test_a_generator_of_predictions_is_a_stream(
    load: Load, ask: Ask, keyword: str, accept: str, content_type: str, expected: list[bytes]
) -> None:
    code = load(OWN_MODEL + f"{keyword} predict_fn(data, model):\n    for n in range(2):\n        yield {{'n': n}}\n")
    outcome = ask(code, accept=accept)
    assert (outcome.content_type, pieces(outcome)) == (content_type, expected)


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_generator_of_ones_own_framing_is_sent_as_it_is(load: Load, ask: Ask, keyword: str) -> None:
    code = load(
        OWN_MODEL
        + f"""
def predict_fn(data, model): return ["a", "b"]
{keyword} frames(items):
    for item in items:
        yield f"<{{item}}>"
    yield b"\\xff"
    yield {{"end": True}}
def output_fn(prediction, accept): return frames(prediction), "text/x-frames"
"""
    )
    outcome = ask(code)
    assert outcome.content_type == "text/x-frames"
    assert pieces(outcome) == [b"<a>", b"<b>", b"\xff", b'{"end":true}\n']


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_stream_that_fails_ends_in_its_error(load: Load, ask: Ask, keyword: str) -> None:
    code = load(OWN_MODEL + f"{keyword} predict_fn(data, model):\n    yield 1\n    raise ValueError('midway')\n")
    stream = ask(code).body
    assert isinstance(stream, Iterator)
    assert next(stream) == b"1\n"
    assert json.loads(next(stream))["error"]["message"] == "predict_fn raised ValueError: midway"
    with pytest.raises(EndpointError):
        next(stream)


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_stream_that_fails_at_once_is_an_error_with_a_status(load: Load, ask: Ask, keyword: str) -> None:
    code = load(OWN_MODEL + f"{keyword} predict_fn(data, model):\n    raise ValueError('at once')\n    yield 1\n")
    stream = ask(code).body
    assert isinstance(stream, Iterator)
    with pytest.raises(EndpointError, match="at once"):
        next(stream)


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_client_that_leaves_ends_the_generator(load: Load, ask: Ask, keyword: str, tmp_path: Any) -> None:
    """Not by being collected: the code has a hold on it."""
    code = load(
        OWN_MODEL
        + f"""
import pathlib
kept = []
{keyword} numbers():
    try:
        while True:
            yield "more"
    finally:
        pathlib.Path(r"{tmp_path}/closed").touch()
def predict_fn(data, model):
    kept.append(numbers())
    return kept[0]
"""
    )
    stream: Any = ask(code).body
    assert next(stream) == b'"more"\n'
    stream.close()
    assert (tmp_path / "closed").exists()


SCOPES = {
    "a time-out": """
    try:
        async with asyncio.timeout(None) as limit:
            yield 1
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
    except TimeoutError:
        yield 2
""",
    "a context variable": """
    token = variable.set(2)
    yield 1
    yield variable.get()
    variable.reset(token)
""",
    "anyio's cancel scope": """
    with anyio.move_on_after(600):
        yield 1
        yield 2
""",
}


@pytest.mark.parametrize("scope", SCOPES)
def test_what_an_async_stream_opens_before_an_item_is_closed_after_it(load: Load, ask: Ask, scope: str) -> None:
    """An async generator is iterated in one task, as on a server."""
    imports = "import asyncio, anyio, contextvars\nvariable = contextvars.ContextVar('variable')\n"
    code = load(f"{OWN_MODEL}{imports}async def predict_fn(data, model):{SCOPES[scope]}")
    assert pieces(ask(code)) == [b"1\n", b"2\n"]


def test_a_time_out_while_the_client_reads_ends_the_stream_with_an_error(load: Load, ask: Ask) -> None:
    code = load(
        OWN_MODEL
        + """
import asyncio
async def predict_fn(data, model):
    async with asyncio.timeout(None) as limit:
        limit.reschedule(asyncio.get_running_loop().time())
        yield 1
        await asyncio.Event().wait()
"""
    )
    with pytest.raises(EndpointError, match="predict_fn raised"):
        pieces(ask(code))


def test_a_stream_that_is_closed_leaves_no_task_and_raises_what_its_end_raises() -> None:
    caller, tasks = HookCaller(), list[object]()

    async def numbers() -> AsyncIterator[int]:
        tasks.append(asyncio.current_task())
        try:
            yield 1
            yield 2
        finally:
            tasks.append(asyncio.current_task())
            raise ValueError("at its end")

    items = caller.pieces("predict_fn", numbers())
    assert next(items) == 1
    with pytest.raises(EndpointError, match="at its end"):
        items.close()
    assert tasks[0] is tasks[1]
    collected = caller.pieces("predict_fn", numbers())
    assert next(collected) == 1
    on_loop(caller.loop, collected.close)  # as the garbage collector may; it does not wait for itself
    eventually(lambda: caller.loop.tasks() == 0)
    assert len(tasks) == 4
    end_loop(caller.loop)


# The engine


def test_without_hooks_of_ones_own_the_engine_answers(load: Load, ask: Ask) -> None:
    code = load("")
    reply = json.loads(ask(code, json.dumps({"inputs": "a|b"})).body)  # type: ignore[arg-type]
    assert reply == {"generated_text": "ab"}
    chat = json.dumps({"messages": [{"role": "user", "content": "c|d"}]})
    assert json.loads(ask(code, chat).body)["choices"][0]["message"]["content"] == "cd"  # type: ignore[arg-type]
    assert refused(ask, code, "[1]").status == 400
    assert refused(ask, code, '{"inputs": 5}').param == "inputs"
    assert refused(ask, code, '{"inputs": "a", "stream": true}').param == "stream"


ENGINE_HOOKS = """
def predict_fn(data, model):
    if data.get("how") == "stream":
        return model.stream(data["prompt"], max_tokens=50)
    answer = getattr(model, data["how"])(data["prompt"], max_tokens=50)
    counts = {"tokens": len(answer.token_ids), "prompt": answer.prompt_tokens}
    return {"text": answer.text, "why": answer.finish_reason, **counts}
"""
ASYNC_HOOKS = """
async def predict_fn(data, model):
    answer = await model.agenerate(data["prompt"])
    return answer.text
"""
ASYNC_STREAM = """
async def predict_fn(data, model):
    async for piece in model.astream(data["prompt"]):
        yield piece
"""


def test_the_engine_from_hooks(load: Load, ask: Ask) -> None:
    code = load(ENGINE_HOOKS)
    whole = json.loads(ask(code, '{"how": "generate", "prompt": "a|b|<length>"}').body)  # type: ignore[arg-type]
    assert whole == {"text": "ab", "why": "length", "tokens": 3, "prompt": 13}
    messages = '{"how": "chat", "prompt": [{"role": "user", "content": "x|y"}]}'
    assert json.loads(ask(code, messages).body)["text"] == "xy"  # type: ignore[arg-type]
    assert pieces(ask(code, '{"how": "stream", "prompt": "a|b"}')) == [b'"a"\n', b'"b"\n']


def test_the_engine_from_async_hooks(load: Load, ask: Ask) -> None:
    assert ask(load(ASYNC_HOOKS), '{"prompt": "a|b"}').body == b'"ab"'


def test_the_engine_streamed_from_async_hooks(load: Load, ask: Ask, engine: ScriptedEngine) -> None:
    code = load(ASYNC_STREAM)
    assert pieces(ask(code, '{"prompt": "a|b"}')) == [b'"a"\n', b'"b"\n']
    stream: Any = ask(code, '{"prompt": "a|<hold>"}').body
    assert next(stream) == b'"a"\n'
    stream.close()
    eventually(lambda: engine.cancelled == 1)


def test_an_answer_that_is_no_longer_wanted_frees_its_slot(load: Load, ask: Ask, engine: ScriptedEngine) -> None:
    stream: Any = ask(load(ENGINE_HOOKS), '{"how": "stream", "prompt": "a|<hold>"}').body
    assert next(stream) == b'"a"\n'
    assert engine.unfinished() == 1
    stream.close()
    eventually(lambda: engine.cancelled == 1)


def test_the_engines_errors_keep_their_status(load: Load, ask: Ask) -> None:
    code = load(ENGINE_HOOKS)
    assert refused(ask, code, '{"how": "generate", "prompt": ""}'.replace('""', "[]")).status == 400
    assert (
        refused(ask, code, '{"how": "generate", "prompt": "<fail>"}').document()["error"]["code"] == "generation_failed"
    )


def test_a_field_that_plain_text_cannot_honour_is_refused(load: Load, ask: Ask) -> None:
    code = load("def predict_fn(data, model): return model.generate('a', **data).text")
    for fields in ({"response_format": {"type": "json_object"}}, {"n": 2}, {"logprobs": 2}, {"max_new_tokens": 5}):
        assert refused(ask, code, json.dumps(fields)).param in fields
    assert ask(code, '{"n": 1}').body == b'"a"'


def test_a_generator_of_output_fn_fails_by_its_own_name_and_has_no_wildcard_as_its_type(load: Load, ask: Ask) -> None:
    hooks = "def predict_fn(data, model): return data\ndef output_fn(prediction, accept): yield 1 / 0"
    reply = ask(load(OWN_MODEL + hooks), accept="*/*;q=0.8")
    assert reply.content_type == "application/json"
    with pytest.raises(EndpointError, match="output_fn raised ZeroDivisionError"):
        pieces(reply)


def test_the_default_predict_fn_answers_as_invocations_would(
    write: Callable[..., CodeSource], ask: Ask, engine: ScriptedEngine
) -> None:
    options = RequestOptions(inputs_schema="tgi", output_formatter="sse")
    code = load_code(write("def model_warmup_fn(model_dir, model): pass"), engine, options)  # type: ignore[arg-type]
    assert json.loads(ask(code, '{"inputs": "a", "model": "endpoint-7"}').body) == [{"generated_text": "aa"}]  # type: ignore[arg-type]
    assert refused(ask, code, '{"inputs": "a"}', **{"X-Amzn-SageMaker-Adapter-Identifier": "pirate"}).status == 404


HOW_LONG = """
def predict_fn(data, model):
    if data["how"] == "generate":
        return model.generate("a|<hold>").text
    return model.respond({"inputs": "a|<hold>"}) if data["how"] == "respond" else model.stream("a|<hold>")
"""
HOW_LONG_ASYNC = """
async def predict_fn(data, model):
    answer = await model.agenerate("a|<hold>")
    return answer.text
"""


@pytest.mark.parametrize(
    ("how", "hooks"), [(how, HOW_LONG) for how in ("generate", "respond", "stream")] + [("", HOW_LONG_ASYNC)]
)
def test_an_answer_that_comes_too_late_is_ended_and_frees_its_slot(
    load: Load, ask: Ask, engine: ScriptedEngine, how: str, hooks: str
) -> None:
    code = load(hooks)
    REQUEST_DEADLINE.set(lambda stream: (0.05, DeadlineExceeded(0.05, stream=stream)))
    try:
        with pytest.raises(DeadlineExceeded):
            pieces(ask(code, json.dumps({"how": how})))
    finally:
        REQUEST_DEADLINE.set(None)
    eventually(lambda: engine.cancelled == 1)


def test_a_model_fn_of_ones_own_gets_the_engine_by_its_context(load: Load, ask: Ask) -> None:
    code = load(
        """
        class Loud:
            def __init__(self, engine): self.engine = engine
        def model_fn(model_dir, context): return Loud(context.engine)
        def predict_fn(data, model): return model.engine.generate(data["prompt"]).text.upper()
        """
    )
    assert ask(code, '{"prompt": "a|b"}').body == b'"AB"'


def test_hooks_run_without_an_engine(load: Load, ask: Ask) -> None:
    assert ask(load(OWN_MODEL + "def predict_fn(data, model): return model", with_engine=False)).body == b'"own model"'


# What ends the start


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("def (", "SyntaxError"),
        ("def model_fn(model_dir): raise OSError('no weights')", "model_fn raised OSError: no weights"),
        ("def model_fn(model_dir): raise SystemExit('no weights')", "model_fn raised SystemExit: no weights"),
        ("import sys; sys.exit('no argument')", "importing it raised SystemExit: no argument"),
        (OWN_MODEL + "def predict_fn(data): return data", "predict_fn"),
        (OWN_MODEL + "def output_fn(a, b, c, d): return a", "output_fn"),
        (OWN_MODEL + "def transform_fn(a, b, c, d): ...\ndef predict_fn(a, b): ...", "transform_fn"),
    ],
)
def test_code_that_cannot_work_is_a_setting_error(load: Load, text: str, named: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(text)
    assert named in caught.value.message


def test_no_model_fn_and_no_engine(load: Load) -> None:
    with pytest.raises(SettingError, match="model_fn"):
        load("def predict_fn(data, model): return data", with_engine=False)


def test_the_modules_own_imports_are_found_beside_it(load: Load, ask: Ask, tmp_path: Any) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helper_of_hooks.py").write_text("VALUE = 7\n")
    code = load(
        "def model_fn(model_dir):\n    import helper_of_hooks\n    return helper_of_hooks.VALUE\n"
        "def predict_fn(data, model): return model\n"
    )
    assert ask(code).body == b"7"
    assert threading.active_count() < 100


def test_a_script_with_the_name_of_a_package_in_use_replaces_nothing(load: Load, ask: Ask) -> None:
    program, environ = "code/handler.py", {"SAGEMAKER_PROGRAM": "handler.py"}
    own = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import ClassVar

    @dataclass
    class Label:
        text: str
        size: ClassVar[int] = 1
    def model_fn(model_dir): return Label("a")
    def transform_fn(model, data, content_type, accept): return model.text
    """
    package = sys.modules["handler"]
    assert ask(load(own, program, environ=environ)).body == b"a"
    assert sys.modules["handler"] is package
    with pytest.raises(SettingError, match="importing it raised"):
        load("1 / 0", program, environ=environ)
    assert sys.modules["handler"] is package


@pytest.mark.parametrize("call", ["generate('a', **data)", "respond({'prompt': 'a', **data})"])
@pytest.mark.parametrize("field", ["prompt", "stop", "user"])
def test_half_of_a_character_in_a_text_for_the_engine_is_the_callers_error(
    load: Load, ask: Ask, call: str, field: str
) -> None:
    """`json.loads` makes it. The engine's message cannot have it."""
    code = load(
        f"""
        import json
        def input_fn(data, content_type): return json.loads(data)
        def predict_fn(data, model): return model.{call.replace("'a', ", "data.pop('prompt', 'a'), ")}
        """
    )
    error = refused(ask, code, json.dumps({field: ["\ud800"] if field == "stop" else "\ud800"}))
    assert (error.status, error.param) == (400, field)
    assert "half of a surrogate pair" in error.message
