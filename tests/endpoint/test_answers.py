"""The right answer, to the letter, by every way in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

QUESTION = "What does /ping mean?"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
PLAIN = f"Question: {QUESTION}\nAnswer:"


def answer() -> str:
    return by_name("ping").answer


def events(body: bytes) -> list[Any]:
    """The JSON of each server-sent event; the end mark as it stands."""
    datas = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
def test_chat(endpoint: ServeProcess, path: str) -> None:
    reply = endpoint.client.post(path, json={"messages": MESSAGES, "temperature": 0})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    choice = reply.json()["choices"][0]
    assert choice["message"]["content"] == answer()
    assert choice["finish_reason"] == "stop"
    usage = reply.json()["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
def test_chat_streamed(endpoint: ServeProcess, path: str) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    reply = endpoint.client.post(path, json=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, end = events(reply.content)
    assert end == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == answer()
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 20


@pytest.mark.parametrize("path", ["/invocations", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_completion(endpoint: ServeProcess, path: str, stream: bool) -> None:
    body = {"prompt": PLAIN, "temperature": 0, "max_tokens": 100, "stream": stream}
    reply = endpoint.client.post(path, json=body)
    if stream:
        *chunks, end = events(reply.content)
        assert end == "[DONE]"
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    else:
        text = reply.json()["choices"][0]["text"]
    assert text.strip() == answer()


def test_a_token_id_prompt_is_the_text_it_encodes(endpoint: ServeProcess) -> None:
    from tokenizers import Tokenizer

    import sample_model

    tokenizer = Tokenizer.from_file(str(sample_model.path() / "tokenizer.json"))
    ids = tokenizer.encode(PLAIN).ids
    body = {"prompt": ids, "temperature": 0, "max_tokens": 100}
    assert endpoint.client.post("/invocations", json=body).json()["choices"][0]["text"].strip() == answer()


def test_max_tokens_is_exact_and_says_length(endpoint: ServeProcess) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "max_completion_tokens": 7}
    reply = endpoint.client.post("/invocations", json=body).json()
    assert reply["usage"]["completion_tokens"] == 7
    assert reply["choices"][0]["finish_reason"] == "length"
    assert answer().startswith(reply["choices"][0]["message"]["content"])


def test_a_stop_string_ends_the_answer_before_it(endpoint: ServeProcess) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "stop": ["healthy"]}
    choice = endpoint.client.post("/invocations", json=body).json()["choices"][0]
    assert choice["message"]["content"] == answer().split("healthy")[0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "healthy")


def test_models(endpoint: ServeProcess) -> None:
    data = endpoint.client.get("/v1/models").json()["data"]
    assert [(model["id"], model["max_model_len"]) for model in data] == [("sample", 1024)]


def test_sixteen_at_once_all_get_their_own_answer(endpoint: ServeProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    names = ["ping", "hello", "thanks", "who-are-you"] * 8
    questions = {name: by_name(name).questions[0] for name in names}

    def ask(name: str) -> str:
        body = {"messages": [{"role": "user", "content": questions[name]}], "temperature": 0}
        reply: str = endpoint.client.post("/invocations", json=body).json()["choices"][0]["message"]["content"]
        return reply

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, names)) == [by_name(name).answer for name in names]


def test_openai_client_streamed(endpoint: ServeProcess) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="unused")
    stream = client.chat.completions.create(model="sample", messages=MESSAGES, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == answer()


def test_openai_client_reads_our_errors(endpoint: ServeProcess) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="unused", max_retries=0)
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nope", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    assert "'sample'" in str(caught.value)


def test_boto3(runtime: Any) -> None:
    body = json.dumps({"messages": MESSAGES, "temperature": 0})
    reply = runtime.invoke_endpoint(EndpointName="sample", ContentType="application/json", Body=body)
    assert json.loads(reply["Body"].read())["choices"][0]["message"]["content"] == answer()


def test_boto3_streamed(runtime: Any) -> None:
    body = json.dumps({"messages": MESSAGES, "temperature": 0, "stream": True})
    reply = runtime.invoke_endpoint_with_response_stream(
        EndpointName="sample", ContentType="application/json", Body=body
    )
    received = b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"])
    *chunks, end = events(received)
    assert end == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == answer()


def test_boto3_gets_the_container_s_error_in_a_424(runtime: Any) -> None:
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint(EndpointName="sample", ContentType="application/json", Body=b'{"prompt": "a", "n": 0}')
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["OriginalStatusCode"] == 400
    assert json.loads(response["OriginalMessage"])["error"]["param"] == "n"
