"""vLLM's request models take what they take, and stop at what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

from handler.engine.vllm_api.serving.fail_fast_validation import checked

CHAT = {"messages": [{"role": "user", "content": "a"}]}
WRONG: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (ResponsesRequest, {"input": [[1, 2]] * 1000}),
    (ResponsesRequest, {"input": [{"role": "user", "content": [0] * 1000}]}),
    (ResponsesRequest, {"input": "a", "tools": [{"type": "x"}] * 1000}),
    (ChatCompletionRequest, {"messages": [[1, 2]] * 1000}),
    (ChatCompletionRequest, {**CHAT, "stop": [0] * 1000}),
    (ChatCompletionRequest, {**CHAT, "vllm_xargs": {str(number): {} for number in range(1000)}}),
    (CompletionRequest, {"prompt": [{}] * 1000}),
]
RIGHT: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (ResponsesRequest, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}] * 3}),
    (ResponsesRequest, {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {}}]}),
    (ChatCompletionRequest, {**CHAT, "tools": [{"type": "function", "function": {"name": "f"}}], "stop": ["a", "b"]}),
    (ChatCompletionRequest, {**CHAT, "vllm_xargs": {"a": 1, "b": ["c"]}, "logit_bias": {"1": 2}}),
    (CompletionRequest, {"prompt": [[1, 2], [3]], "n": 2}),
]


@pytest.mark.parametrize(("model", "document"), WRONG)
def test_errors_do_not_grow_with_the_request(model: type[BaseModel], document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        checked(model, document)
    assert caught.value.error_count() < 250


@pytest.mark.parametrize(("model", "document"), RIGHT)
def test_what_is_right_is_what_it_always_was(model: type[BaseModel], document: dict[str, Any]) -> None:
    found, expected = checked(model, document), model.model_validate(document)
    assert type(found) is model
    assert found.model_dump(exclude={"request_id"}) == expected.model_dump(exclude={"request_id"})
