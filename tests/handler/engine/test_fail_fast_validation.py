"""vLLM's request models take what they take, and stop at what is wrong."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

pytestmark = pytest.mark.engine

MODELS = {
    "ResponsesRequest": "responses",
    "ChatCompletionRequest": "chat_completion",
    "CompletionRequest": "completion",
}
CHAT = {"messages": [{"role": "user", "content": "a"}]}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("ResponsesRequest", {"input": [[1, 2]] * 1000}),
    ("ResponsesRequest", {"input": [{"role": "user", "content": [0] * 1000}]}),
    ("ResponsesRequest", {"input": "a", "tools": [{"type": "x"}] * 1000}),
    ("ChatCompletionRequest", {"messages": [[1, 2]] * 1000}),
    ("ChatCompletionRequest", {**CHAT, "stop": [0] * 1000}),
    ("ChatCompletionRequest", {**CHAT, "vllm_xargs": {str(number): {} for number in range(1000)}}),
    ("CompletionRequest", {"prompt": [{}] * 1000}),
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("ResponsesRequest", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}] * 3}),
    ("ResponsesRequest", {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {}}]}),
    ("ChatCompletionRequest", {**CHAT, "tools": [{"type": "function", "function": {"name": "f"}}], "stop": ["a", "b"]}),
    ("ChatCompletionRequest", {**CHAT, "vllm_xargs": {"a": 1, "b": ["c"]}, "logit_bias": {"1": 2}}),
    ("CompletionRequest", {"prompt": [[1, 2], [3]], "n": 2}),
]


def request_model(name: str) -> type[BaseModel]:
    """One of vLLM's. Importing vLLM takes seconds, so only the process that runs these tests does it."""
    found: type[BaseModel] = getattr(import_module(f"vllm.entrypoints.openai.{MODELS[name]}.protocol"), name)
    return found


@pytest.mark.parametrize(("name", "document"), WRONG)
def test_errors_do_not_grow_with_the_request(name: str, document: dict[str, Any]) -> None:
    from handler.engine.v1.serving.fail_fast_validation import checked

    with pytest.raises(ValidationError) as caught:
        checked(request_model(name), document)
    assert caught.value.error_count() < 250


def test_a_model_that_is_built_already_stops_as_well() -> None:
    from openai.types.responses import ResponseInputText, ResponseOutputMessage

    from handler.engine.v1.serving import fail_fast_validation

    for model in (ResponseInputText, ResponseOutputMessage):
        model.model_rebuild(force=True)
    fail_fast_validation._validator.cache_clear()
    with pytest.raises(ValidationError) as caught:
        fail_fast_validation.checked(request_model("ResponsesRequest"), WRONG[1][1])
    assert caught.value.error_count() < 250


@pytest.mark.parametrize(("name", "document"), RIGHT)
def test_what_is_right_is_what_it_always_was(name: str, document: dict[str, Any]) -> None:
    from handler.engine.v1.serving.fail_fast_validation import checked

    model = request_model(name)
    found, expected = checked(model, document), model.model_validate(document)
    assert type(found) is model
    assert found.model_dump(exclude={"request_id"}) == expected.model_dump(exclude={"request_id"})
