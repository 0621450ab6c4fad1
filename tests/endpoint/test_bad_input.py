"""Bad input: a clear 4xx that names the field, and a server that goes on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import is_016

pytestmark = pytest.mark.engine
LONG = "x " * 500_000

JSON = {"Content-Type": "application/json"}
CHAT = '{"messages": [{"role": "user", "content": "Hello"}], %s}'
GRAMMAR = b'{"prompt": "a", "structured_outputs": {"grammar": "root ::="}}'
# What, body, status, the field that the error names.
CASES: list[tuple[str, bytes, int, str | None]] = [
    ("not JSON", b"hello", 400, None),
    ("nothing", b"", 400, None),
    ("an array", b"[1, 2]", 400, None),
    ("a number", b"7", 400, None),
    ("invalid UTF-8", b'{"prompt": "\xff\xfe"}', 400, None),
    ("a lone surrogate", b'{"prompt": "\\ud800"}', 400, None),
    ("10,000-deep nesting", b"[" * 10_000 + b"]" * 10_000, 400, None),
    ("deep nesting in a field", b'{"messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, None),
    ("NaN", b'{"prompt": "a", "temperature": NaN}', 400, None),
    ("1e999", b'{"prompt": "a", "temperature": 1e999}', 400, None),
    ("no prompt", b"{}", 400, "messages"),
    ("null messages", b'{"messages": null}', 400, "messages"),
    ("no messages", b'{"messages": []}', 400, "messages"),
    ("a prompt of no tokens", b'{"prompt": []}', 400, "prompt"),
    ("two kinds of prompt", b'{"prompt": "a", "inputs": "b"}', 400, None),
    ("an over-long prompt", json.dumps({"prompt": "hello " * 5000}).encode(), 400, "prompt"),
    ("a role that the template rejects", b'{"messages": [{"role": "martian", "content": "Hello"}]}', 400, "messages"),
    ("the same on the full path", b'{"messages": [{"role": "martian", "content": "a"}], "logprobs": true}', 400, None),
    ("no role", b'{"messages": [{"content": "Hello"}]}', 400, "messages[0].role"),
    ("content of a wrong type", b'{"messages": [{"role": "user", "content": 7}]}', 400, "messages[0].content"),
    ("messages of a wrong type", b'{"messages": "Hello"}', 400, "messages"),
    ("max_tokens of -1", (CHAT % '"max_tokens": -1').encode(), 400, "max_tokens"),
    ("max_tokens of 0", (CHAT % '"max_tokens": 0').encode(), 400, "max_tokens"),
    ('max_tokens of "ten"', (CHAT % '"max_tokens": "ten"').encode(), 400, "max_tokens"),
    ("max_tokens of 10^9", (CHAT % '"max_tokens": 1000000000').encode(), 400, "max_tokens"),
    ("max_tokens of 10^30", (CHAT % ('"max_tokens": 1' + "0" * 30)).encode(), 400, "max_tokens"),
    ("n of 0", (CHAT % '"n": 0').encode(), 400, "n"),
    ("a huge seed", b'{"prompt": "a", "seed": 123456789012345678901234567890}', 400, "seed"),
    ("a negative temperature", b'{"prompt": "a", "temperature": -1}', 400, "temperature"),
    ("a slip of the pen", b'{"prompt": "a", "max_tokns": 5}', 400, "max_tokns"),
    ("a token id outside the vocabulary", b'{"prompt": [1, 99999999]}', 400, "prompt"),
    ("a negative token id", b'{"prompt": [-1]}', 400, "prompt"),
    ("a grammar that ends vLLM's engine", GRAMMAR, 400, "structured_outputs"),
    ("more than 25 MB", b'{"prompt": "' + b"a" * (26 * 1024 * 1024) + b'"}', 413, None),
]


@pytest.mark.parametrize("path", ["/invocations", "/v1/audio/transcriptions", "/v1/audio/translations"])
def test_a_text_model_transcribes_no_speech(endpoint: ServeProcess, path: str) -> None:
    reply = endpoint.client.post(path, files={"file": ("a.wav", b"RIFF")}, data={"language": "en"})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "unsupported_task")
    assert error["param"].startswith("/v1/audio/")
    reply = endpoint.client.post("/v1/audio/transcriptions", json={"model": None})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "file")


@pytest.mark.parametrize(("body", "status", "field"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_body(endpoint: ServeProcess, body: bytes, status: int, field: str | None) -> None:
    reply = endpoint.client.post("/invocations", content=body, headers=JSON)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == field
    assert error["message"]
    assert "Traceback" not in reply.text
    assert ".py" not in reply.text
    assert endpoint.ping() == (200, "")


def test_another_model_is_refused_where_the_path_names_none(endpoint: ServeProcess) -> None:
    body = {"prompt": "a", "max_tokens": 1, "model": "gpt-9"}
    reply = endpoint.client.post("/v1/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (404, "model")
    # At /invocations SageMaker's endpoint has chosen, and litellm sends that endpoint's name.
    assert endpoint.client.post("/invocations", json=body).json()["model"] == "sample"
    header = {"X-Amzn-SageMaker-Adapter-Identifier": "gpt-9"}
    assert endpoint.client.post("/invocations", json=body, headers=header).status_code == 404


def test_a_wrong_content_type(endpoint: ServeProcess) -> None:
    reply = endpoint.client.post("/invocations", content=b"prompt=a", headers={"Content-Type": "text/csv"})
    assert reply.status_code == 415
    assert "application/json" in reply.json()["error"]["message"]


def test_the_right_content_type_with_a_charset(endpoint: ServeProcess) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    reply = endpoint.client.post("/invocations", content=b'{"prompt": "a", "max_tokens": 1}', headers=headers)
    assert reply.status_code == 200


def test_the_error_object_is_the_same_for_a_stream(endpoint: ServeProcess) -> None:
    reply = endpoint.client.post("/invocations", json={"prompt": "a", "stream": True, "max_tokens": 100_000})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "max_tokens"


def test_what_vllm_alone_refuses_names_the_field(endpoint: ServeProcess) -> None:
    """0.24.0 and later take no temperature above 2; those before take any."""
    reply = endpoint.client.post("/invocations", json={"prompt": "a", "max_tokens": 1, "temperature": 2.5})
    assert reply.status_code == (200 if is_016() else 400), reply.text
    if reply.status_code == 400:
        error = reply.json()["error"]
        assert error["param"] == "temperature"
        assert "parameter=" not in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": LONG}, "prompt"),
        ({"prompt": LONG, "logprobs": 1}, "prompt"),
        ({"messages": [{"role": "user", "content": LONG}]}, "messages"),
        ({"messages": [{"role": "user", "content": LONG}], "logprobs": True}, "prompt"),
        ({"inputs": LONG}, "inputs"),
        ({"inputs": ["a", LONG]}, "inputs[1]"),
    ],
)
def test_a_prompt_that_cannot_fit_is_refused_by_its_characters(
    endpoint: ServeProcess, body: dict[str, object], param: str
) -> None:
    """Counting the tokens of a few of these at once takes gigabytes."""
    reply = endpoint.client.post("/invocations", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
    assert "characters" in error["message"]


def test_a_prompt_of_which_the_end_is_wanted_need_not_fit(endpoint: ServeProcess) -> None:
    def first(text: str) -> str:
        parameters = {"truncate": 8, "max_new_tokens": 4, "return_full_text": False}
        reply = endpoint.client.post("/invocations", json={"inputs": text, "parameters": parameters})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["generated_text"])

    assert first(LONG + "What does /ping mean?") == first("x x x x x x x x What does /ping mean?")


def test_a_wrong_path_and_a_wrong_method(endpoint: ServeProcess) -> None:
    assert endpoint.client.get("/nowhere").json()["error"]["code"] == "not_found"
    assert endpoint.client.get("/invocations").status_code == 405


def test_all_of_it_at_once_beside_good_requests(endpoint: ServeProcess) -> None:
    """Bad requests in the same batch as good ones harm none of them."""
    bad = [body for _, body, status, _ in CASES if status != 413]

    def post(body: bytes) -> int:
        return endpoint.client.post("/invocations", content=body, headers=JSON).status_code

    def ask(_: int) -> str:
        body = {"messages": [{"role": "user", "content": by_name("hello").questions[0]}], "temperature": 0}
        text: str = endpoint.client.post("/invocations", json=body).json()["choices"][0]["message"]["content"]
        return text

    with ThreadPoolExecutor(16) as pool:
        statuses = [pool.submit(post, body) for body in bad * 2]
        answers = list(pool.map(ask, range(24)))
        assert {status.result() for status in statuses} == {400}
    assert set(answers) == {by_name("hello").answer}
    assert endpoint.metric("endpoint_requests_in_flight") == 0
