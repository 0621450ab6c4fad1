"""An endpoint whose model makes embeddings: the sample model, its last hidden state pooled."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("embeddings")
    with ServeProcess(
        directory,
        {
            "ENDPOINT_MODEL": str(sample_model.path()),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "SM_VLLM_SERVED_MODEL_NAME": "sample",
            "SM_VLLM_RUNNER": "pooling",
        },
    ).serving() as served:
        yield served


def test_an_embedding_is_a_vector_of_length_one_and_the_same_each_time(pooling: ServeProcess) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{pooling.url}/v1", api_key="unused", max_retries=0)
    texts = ["What does /ping mean?", "Who are you?"]
    reply = client.embeddings.create(model="sample", input=texts)  # base64, as the client likes it
    assert [item.index for item in reply.data] == [0, 1]
    for item in reply.data:
        assert math.isclose(math.hypot(*item.embedding), 1, rel_tol=1e-4)
    alone = client.embeddings.create(model="sample", input=texts[0], encoding_format="float").data[0].embedding
    assert alone == pytest.approx(reply.data[0].embedding, abs=1e-5)
    assert alone != pytest.approx(reply.data[1].embedding, abs=1e-2)
    ids = pooling.client.post("/tokenize", json={"prompt": texts[0]}).json()["tokens"]
    assert client.embeddings.create(model="sample", input=ids, encoding_format="float").data[0].embedding == alone
    assert reply.usage.prompt_tokens > len(ids)


def test_invocations_makes_one_and_no_text(pooling: ServeProcess) -> None:
    post = pooling.client.post
    assert len(post("/invocations", json={"input": "a"}).json()["data"]) == 1
    for body in ({"prompt": "a"}, {"inputs": "a"}):
        reply = post("/invocations", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_task")
    reply = post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "a"}]})
    assert "/v1/embeddings" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [99_999_999]},
        {"input": []},
        {"input": "a " * 3000},
        {"input": 5},
        {"input": "a", "encoding_format": "bytes"},
        {"input": "a", "dimensions": 3},
        {"input": "a", "model": 7},
        {},
    ],
)
def test_what_cannot_be_embedded_is_refused(pooling: ServeProcess, fields: dict[str, object]) -> None:
    reply = pooling.client.post("/v1/embeddings", json=fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["message"]
    assert pooling.ping() == (200, "")
