"""A batch through the openai client, with a real engine and its files in a real S3 server."""

from __future__ import annotations

import json

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine


def test_chats_as_a_batch(endpoint: ServeProcess) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0)
    question = {"role": "user", "content": "What does /ping mean?"}
    chats: dict[str, dict[str, object]] = {
        "plain": {"temperature": 0},
        "through vLLM's classes": {"temperature": 0, "logprobs": True},
        "streamed": {"stream": True},
        "wrong": {"temperature": "hot"},
    }
    rows = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "sample", "messages": [question], **fields},
        }
        for name, fields in chats.items()
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    uploaded = client.files.create(file=("input.jsonl", content), purpose="batch")
    assert client.files.content(uploaded.id).content == content
    made = client.batches.create(input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h")
    endpoint.until(lambda: client.batches.retrieve(made.id).status == "completed", 120)
    batch = client.batches.retrieve(made.id)
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    answers = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert {row["custom_id"] for row in answers} == {"plain", "through vLLM's classes"}
    for row in answers:
        assert row["response"]["body"]["choices"][0]["message"]["content"] == by_name("ping").answer
    errors = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
    params = {row["custom_id"]: row["response"]["body"]["error"]["param"] for row in errors}
    assert params == {"streamed": "stream", "wrong": "temperature"}
