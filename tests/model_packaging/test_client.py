"""The client against SageMaker's protocol, cut at random, with a container that does what a test says."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_packaging.client import EndpointClient, InvocationFailed, StreamCut, events, text_of
from tests.local_sagemaker.gateway_process import GatewayProcess
from tests.local_sagemaker.scripted_container import Exchange, ScriptedContainer
from tests.model_packaging.command import run

TEXT = "Grüße, 世界 🚀\n\ndata: not an event"
CHAT = {"messages": [{"role": "user", "content": "x"}]}
ERROR = {
    "message": "max_tokens is too large. Use 512.",
    "type": "invalid_request_error",
    "param": "max_tokens",
    "code": "x",
}


@pytest.fixture(scope="module")
def container() -> Iterator[ScriptedContainer]:
    made = ScriptedContainer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def gateway(container: ScriptedContainer) -> Iterator[GatewayProcess]:
    made = GatewayProcess(container.url, "--cut-parts", "random")
    yield made
    made.stop()


@pytest.fixture
def client(gateway: GatewayProcess) -> EndpointClient:
    return EndpointClient("sample", runtime=gateway.runtime)


def event(document: Any, end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + end


def chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def streams(container: ScriptedContainer, *frames: bytes, broken: bool = False) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def script(exchange: Exchange) -> None:
        seen.update(json.loads(exchange.body))
        exchange.begin({"Content-Type": "text/event-stream"})
        for frame in frames:
            exchange.send(frame)
        exchange.break_off() if broken else exchange.end()

    container.script = script
    return seen


def refuses(container: ScriptedContainer, status: int, body: bytes) -> None:
    container.script = lambda exchange: exchange.reply(body, status, {"Content-Type": "application/json"})


def test_text_is_whole_however_it_is_cut(container: ScriptedContainer, client: EndpointClient) -> None:
    seen = streams(container, *(event(chunk(letter)) for letter in TEXT), b"data: [DONE]\n\n")
    for _ in range(5):
        assert "".join(client.text(CHAT)) == TEXT
    assert seen == {**CHAT, "stream": True}


def test_tokens_of_tgi_end_without_a_mark(container: ScriptedContainer, client: EndpointClient) -> None:
    first = {"index": 1, "token": {"text": "né", "special": False}, "generated_text": None}
    last = {"index": 2, "token": {"text": "e", "special": False}, "generated_text": "née", "details": None}
    streams(container, event(first), event(last))
    assert "".join(client.text({"inputs": "x"})) == "née"
    streams(container, event(first))
    with pytest.raises(StreamCut, match="without its end mark"):
        list(client.text({"inputs": "x"}))


def _take(client: EndpointClient, got: list[str]) -> None:
    for text in client.text(CHAT):
        got.append(text)


def test_an_error_within_a_stream_comes_after_its_text(container: ScriptedContainer, client: EndpointClient) -> None:
    streams(container, event(chunk("half ")), event({"error": ERROR}))
    got: list[str] = []
    with pytest.raises(InvocationFailed, match="too large") as caught:
        _take(client, got)
    assert got == ["half "]
    assert caught.value.error == ERROR
    assert not isinstance(caught.value, StreamCut)


@pytest.mark.parametrize("broken", [True, False])
def test_a_stream_that_stops_is_no_answer(container: ScriptedContainer, client: EndpointClient, broken: bool) -> None:
    streams(container, event(chunk("half")), broken=broken)
    got: list[str] = []
    with pytest.raises(StreamCut):
        _take(client, got)
    assert got == ["half"]


def test_the_containers_own_error(container: ScriptedContainer, client: EndpointClient) -> None:
    refuses(container, 400, json.dumps({"error": ERROR}).encode())
    for ask in (client.invoke, lambda body: list(client.stream(body))):
        with pytest.raises(InvocationFailed) as caught:
            ask(CHAT)
        assert (caught.value.status, caught.value.error) == (400, ERROR)
        assert str(caught.value) == ERROR["message"]
        assert "log-group" in caught.value.log


def test_an_error_that_is_no_json(container: ScriptedContainer, client: EndpointClient) -> None:
    refuses(container, 502, b"<html>bad gateway")
    with pytest.raises(InvocationFailed, match="<html>bad gateway") as caught:
        client.invoke(CHAT)
    assert caught.value.status == 502


def test_sagemakers_own_errors_stay_boto3s(gateway: GatewayProcess) -> None:
    with pytest.raises(gateway.runtime.exceptions.ClientError, match="Endpoint nowhere"):
        EndpointClient("nowhere", runtime=gateway.runtime).invoke(CHAT)


@given(
    st.lists(st.text(max_size=12), max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
def test_events_do_not_depend_on_the_cuts(texts: list[str], rng: random.Random, end: bytes) -> None:
    whole = b": a comment" + end + b"".join(event(chunk(text), end) for text in texts)
    parts = []
    while whole:
        size = rng.randint(1, 9)
        parts.append(whole[:size])
        whole = whole[size:]
    assert [text_of(json.loads(data)) for data in events(parts)] == texts


def typed(gateway: GatewayProcess, *words: str, **more: Any) -> Any:
    environ = {
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": gateway.url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return run(*words, **environ, **more)


def invoked(gateway: GatewayProcess, *words: str, **more: Any) -> Any:
    return typed(gateway, "invoke", "sample", *words, **more)


def test_the_command_prints_the_text_as_it_comes(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    seen = streams(container, *(event(chunk(letter)) for letter in TEXT), b"data: [DONE]\n\n")
    result = invoked(gateway, "What?", "--system", "Be short.", "--temperature", "0")
    assert (result.exit_code, result.stdout) == (0, TEXT + "\n")
    assert seen["messages"][0] == {"role": "system", "content": "Be short."}
    assert seen["temperature"] == 0
    assert "max_tokens" not in seen  # the endpoint's default is what fits into its context


def test_the_command_takes_a_whole_request_and_prints_json(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    reply = {"choices": [{"index": 0, "message": {"content": "ja"}}]}
    container.script = lambda exchange: exchange.reply(json.dumps(reply).encode())
    result = invoked(gateway, "--body", "-", "--no-stream", "--json", input=json.dumps(CHAT))
    assert (result.exit_code, json.loads(result.stdout)) == (0, reply)


def test_the_command_takes_inputs(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    def script(exchange: Exchange) -> None:
        """As the endpoint: LMI's stream is JSON lines unless events are asked for, and TGI's whole reply is a list."""
        last = {"index": 1, "token": {"text": "née", "special": False}, "generated_text": "née"}
        if not json.loads(exchange.body).get("stream"):
            exchange.reply(json.dumps([{"generated_text": "née"}]).encode())
            return
        exchange.begin()
        exchange.send(
            event(last) if exchange.headers.get("Accept") == "text/event-stream" else json.dumps(last).encode()
        )
        exchange.end()

    container.script = script
    for words in ((), ("--no-stream",)):
        result = invoked(gateway, "--body", "-", *words, input='{"inputs": "x"}')
        assert (result.exit_code, result.stdout) == (0, "née\n"), result.stderr


CHUNKS: list[dict[str, Any]] = [chunk("né"), chunk("e"), {"choices": []}]
LINES = b"".join(json.dumps(each).encode() + b"\n" for each in CHUNKS)


MESSAGE = b"".join(
    event(each)
    for each in (
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "né"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "e"}},
        {"type": "message_stop"},
    )
)
OUTPUT = [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "née"}]}]
RESPONSE = b"".join(
    event(each)
    for each in (
        {"type": "response.output_text.delta", "delta": "né"},
        {"type": "response.output_text.delta", "delta": "e"},
        {"type": "response.output_text.done", "text": "née"},
        {"type": "response.completed", "response": {"output": OUTPUT}},
    )
)
TWO = [{"index": 1, "delta": {"content": "second"}}, {"index": 0, "delta": {"content": "née"}}]


@pytest.mark.parametrize(
    ("kind", "reply", "status", "said"),
    [
        ("application/jsonlines", LINES, 0, "née"),
        ("application/jsonlines; charset=utf-8", LINES.removesuffix(b"\n"), 0, "née"),
        ("application/jsonlines", LINES + json.dumps({"error": ERROR}).encode(), 4, ERROR["message"]),
        ("application/jsonlines", LINES + b'{"cho', 4, 'The reply is not JSON: {"cho'),
        ("application/jsonlines", b"", 0, "has no text"),
        ("application/json", b'{"choices": [{"message": {"content": "whole"}}]}', 0, "whole"),
        ("application/json", b'[{"generated_text": "a"}, {"generated_text": "b"}]', 0, "ab"),
        ("application/json", b'{"error": {"message": "no"}}', 4, "no"),
        ("application/json", b"[" * 100_000, 4, "The reply is not JSON: [["),
        ("text/plain", b"Hello", 4, "The reply is not JSON: Hello"),
        ("text/event-stream", b"data: Hello\n\n", 4, "The reply is not JSON: Hello"),
        ("text/event-stream", b"data: [1]\n\n", 4, "The reply is not JSON: [1]"),
        ("text/event-stream", event({**chunk("x"), "error": None}) + b"data: [DONE]\n\n", 0, "x"),
        ("text/event-stream", event({"error": "no"}), 4, "no"),
        ("text/event-stream", MESSAGE, 0, "née\n"),
        ("text/event-stream", MESSAGE.rpartition(b"data:")[0], 4, "without its end mark"),
        ("text/event-stream", RESPONSE, 0, "née\n"),
        ("text/event-stream", RESPONSE.replace(b"response.completed", b"response.incomplete"), 0, "née\n"),
        ("text/event-stream", RESPONSE.rpartition(b"data:")[0], 4, "without its end mark"),
        ("text/event-stream", event({"type": "response.failed", "response": {"error": ERROR}}), 4, ERROR["message"]),
        ("text/event-stream", event({"choices": TWO}) + b"data: [DONE]\n\n", 0, "only the first is printed"),
        ("text/event-stream", event({"choices": [None]}) + b"data: [DONE]\n\n", 0, "has no text"),
    ],
)
def test_a_stream_is_read_by_its_content_type(
    container: ScriptedContainer, gateway: GatewayProcess, kind: str, reply: bytes, status: int, said: str
) -> None:
    container.script = lambda exchange: exchange.reply(reply, headers={"Content-Type": kind})
    result = invoked(gateway, "What?")
    assert (result.exit_code, said in result.output) == (status, True), result.output


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (b"Hello", 4, "The reply is not JSON: Hello"),
        (b"\xff", 4, "The reply is not JSON"),
        (b"3", 0, "has no text"),
        (b'"text"', 0, "has no text"),
        (b'{"object": "list", "data": []}', 0, "has no text"),
        (b'{"type": "message", "content": [{"type": "thinking"}, {"type": "text", "text": "Hi"}]}', 0, "Hi\n"),
        (json.dumps({"object": "response", "output": OUTPUT}).encode(), 0, "née\n"),
        (b'{"choices": [{"index": 0, "text": "A"}, {"index": 1, "text": "B"}]}', 0, "only the first is printed"),
    ],
)
def test_a_whole_reply_may_be_anything(
    container: ScriptedContainer, gateway: GatewayProcess, reply: bytes, status: int, said: str
) -> None:
    seen = {}

    def script(exchange: Exchange) -> None:
        seen.update(json.loads(exchange.body))
        exchange.reply(reply, headers={"Content-Type": "application/json"})

    container.script = script
    result = invoked(gateway, "--no-stream", "--body", "-", input='{"prompt": "x", "stream": true}')
    assert (result.exit_code, said in result.output) == (status, True), result.output
    assert seen["stream"] is False


def test_json_lines_come_as_they_are_generated(container: ScriptedContainer, client: EndpointClient) -> None:
    read = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin({"Content-Type": "application/jsonlines"})
        exchange.send(LINES)
        assert read.wait(10)
        exchange.end()

    container.script = script
    texts = client.text(CHAT)
    assert next(texts) == "né"
    read.set()
    assert list(texts) == ["e"]


def test_the_command_says_why_a_reply_has_no_text(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    thinking = {"choices": [{"index": 0, "delta": {"reasoning": "Let me see"}}]}
    streams(container, event(thinking), b"data: [DONE]\n\n")
    result = invoked(gateway, "What?")
    assert (result.exit_code, result.stdout) == (0, "\n")
    assert "only thinking" in result.stderr


def test_the_command_exits_4_with_the_containers_error(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    refuses(container, 400, json.dumps({"error": ERROR}).encode())
    result = invoked(gateway, "What?")
    assert result.exit_code == 4
    assert "error (400): max_tokens is too large. Use 512." in result.stderr
    assert "Traceback" not in result.output


def test_a_saved_reference_is_told_as_json(
    container: ScriptedContainer, gateway: GatewayProcess, tmp_path: Path
) -> None:
    reply = {"choices": [{"index": 0, "text": "ja", "token_ids": [1, 2]}]}
    container.script = lambda exchange: exchange.reply(json.dumps(reply).encode())
    saved = tmp_path / "known.json"
    result = typed(gateway, "accuracy", "sample", "--save", str(saved), "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"saved": str(saved), "prompts": 4})
    assert [run["token_ids"] for run in json.loads(saved.read_text())["runs"]] == [[1, 2]] * 4


def saved_tokens(path: Path, *logprobs: float) -> str:
    runs = [{"prompt": "x", "token_ids": [1, 2], "logprobs": logprobs}]
    path.write_text(json.dumps({"max_tokens": 2, "runs": runs}))
    return str(path)


@pytest.mark.parametrize(
    ("logprobs", "words", "status", "said"),
    [
        ((), ("--logprobs",), 2, "has no log probabilities: save it with --logprobs"),
        ((-1.0, -2.0), ("--logprobs",), 1, "the log probabilities are missing, or differ by over 0.1"),
        ((-1.0, -1.05), ("--logprobs",), 0, "within 0.050"),
        ((), ("--max-tokens", "5"), 2, "--max-tokens goes with --save."),
        ((), ("--prompts", "other.txt"), 2, "--prompts goes with --save."),
        ((), ("--tolerance", "1"), 2, "--tolerance goes with --logprobs."),
    ],
)
def test_accuracy_says_why_it_fails(
    container: ScriptedContainer,
    gateway: GatewayProcess,
    tmp_path: Path,
    logprobs: tuple[float, ...],
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    choice = {"text": "ja", "token_ids": [1, 2], "logprobs": {"token_logprobs": [-1.0, -1.0]}}
    container.script = lambda exchange: exchange.reply(json.dumps({"choices": [choice]}).encode())
    known = saved_tokens(tmp_path / "known.json", *logprobs)
    result = typed(gateway, "accuracy", "sample", "--reference", known, *words)
    assert (result.exit_code, said in result.output.replace("\n", " ")) == (status, True), result.output


def test_accuracy_asks_a_component(container: ScriptedContainer, gateway: GatewayProcess, tmp_path: Path) -> None:
    seen = set()

    def script(exchange: Exchange) -> None:
        seen.add(exchange.headers.get("X-Amzn-SageMaker-Inference-Component"))
        exchange.reply(b'{"choices": [{"text": "ja", "token_ids": [1, 2]}]}')

    container.script = script
    known = saved_tokens(tmp_path / "known.json")
    result = typed(gateway, "accuracy", "sample", "--component", "a", "--reference", known)
    assert (result.exit_code, seen) == (0, {"a"}), result.output


@pytest.mark.parametrize("choices", [None, [], [None], [{"text": "ja"}], [{"token_ids": None}], [{"token_ids": "ab"}]])
def test_a_reply_without_token_ids_is_no_reference(
    container: ScriptedContainer, gateway: GatewayProcess, tmp_path: Path, choices: Any
) -> None:
    container.script = lambda exchange: exchange.reply(json.dumps({"choices": choices}).encode())
    result = typed(gateway, "accuracy", "sample", "--save", str(tmp_path / "known.json"))
    assert (result.exit_code, "The reply has no token ids" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"max_tokens": 5, "runs": []}', "it has no runs"),
        ('{"max_tokens": 1e400, "runs": []}', "out of range"),
        ("[" * 100_000, "Expected `object`"),
        ('{"max_tokens": 5, "runs": [{"prompt": 5, "token_ids": [1]}]}', "Expected `str`, got `int`"),
        ('{"max_tokens": 5, "runs": [{"prompt": "x", "token_ids": "ab"}]}', "Expected `array`, got `str`"),
    ],
)
def test_a_file_that_is_no_reference_is_said(gateway: GatewayProcess, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "known.json").write_text(content)
    result = typed(gateway, "accuracy", "sample", "--reference", str(tmp_path / "known.json"))
    assert (result.exit_code, "not a reference that --save wrote" in result.stderr) == (2, True)
    assert said in result.stderr


def test_a_prompt_that_is_no_utf_8_is_said(gateway: GatewayProcess) -> None:
    for words in (("caf\udce9",), ("x", "--system", "caf\udce9"), ("caf\udce9", "--no-stream")):
        result = invoked(gateway, *words)
        assert result.exit_code == 2
        assert "it is not UTF-8" in result.stderr
    half = invoked(gateway, "--body", "-", input='{"prompt": "\\ud83d"}')
    assert (half.exit_code, "--body" in half.stderr) == (2, True)
    bench = typed(gateway, "bench", "sample", "--prompt", "caf\udce9")
    assert (bench.exit_code, "it is not UTF-8" in bench.stderr) == (2, True)


@pytest.mark.parametrize("words", [(), ("x", "--body", "-"), ("--body", "/nowhere")])
def test_the_command_refuses_half_a_request(gateway: GatewayProcess, words: tuple[str, ...]) -> None:
    assert invoked(gateway, *words).exit_code == 2
