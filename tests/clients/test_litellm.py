"""litellm's two ways to SageMaker: `sagemaker` sends `inputs`, `sagemaker_chat` sends `messages`.

Seen in litellm's sources (llms/sagemaker): the address is made from the region, unless `sagemaker_base_url` gives the
whole of it; the model's name is the endpoint's, and is sent in chats; a payload part is taken for an event.
"""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from tests.clients.asked import ANSWER, ENDPOINT, QUESTION

MESSAGES = [{"role": "user", "content": QUESTION}]
# The sample model's own template, as litellm is told of it: `sagemaker` writes the prompt itself.
TEMPLATE = {
    "roles": {"user": {"pre_message": "<|user|>", "post_message": "<|end|>"}},
    "initial_prompt_value": "<|bos|>",
    "final_prompt_value": "<|assistant|>",
}


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(litellm.custom_prompt_dict, ENDPOINT, TEMPLATE)


@pytest.fixture
def ask(gateway: str) -> Any:
    def completion(provider: str, **fields: Any) -> Any:
        call = "invocations-response-stream" if fields.get("stream") else "invocations"
        return litellm.completion(
            model=f"{provider}/{ENDPOINT}",
            messages=MESSAGES,
            temperature=0,
            **{"max_tokens": 100, "sagemaker_base_url": f"{gateway}/endpoints/{ENDPOINT}/{call}", **fields},
        )

    return completion


@pytest.mark.parametrize("provider", ["sagemaker", "sagemaker_chat"])
def test_the_answer_is_the_models(ask: Any, provider: str) -> None:
    reply = ask(provider)
    assert reply.choices[0].message.content == ANSWER
    assert reply.usage.completion_tokens > 0


@pytest.mark.parametrize("provider", ["sagemaker", "sagemaker_chat"])
def test_a_local_sagemaker_gives_the_same_answer(hosted: str, ask: Any, provider: str) -> None:
    """Not streamed: it cuts streams at any byte, and litellm loses text there."""
    url = f"{hosted}/endpoints/{ENDPOINT}/invocations"
    assert ask(provider, sagemaker_base_url=url).choices[0].message.content == ANSWER


@pytest.mark.parametrize("provider", ["sagemaker", "sagemaker_chat"])
def test_streamed_it_is_the_same_token_by_token(ask: Any, provider: str) -> None:
    texts = [chunk.choices[0].delta.content or "" for chunk in ask(provider, stream=True)]
    assert "".join(texts) == ANSWER
    assert len([text for text in texts if text]) > 3


def test_a_streamed_chat_says_why_it_ended(ask: Any) -> None:
    ends = [chunk.choices[0].finish_reason for chunk in ask("sagemaker_chat", stream=True, max_tokens=3)]
    assert ends[-1] == "length"


def test_parameters_reach_the_model(ask: Any) -> None:
    short = ask("sagemaker", max_tokens=3).choices[0].message.content
    assert short
    assert ANSWER.startswith(short)
    assert short != ANSWER
    assert ask("sagemaker", stop=[ANSWER[5:8]]).choices[0].message.content == ANSWER[:5]


def test_tools_are_passed_on(ask: Any) -> None:
    status = {"type": "object", "properties": {"status": {"enum": [200]}}, "required": ["status"]}
    tool = {"type": "function", "function": {"name": "ask", "parameters": {**status, "additionalProperties": False}}}
    chosen = {"type": "function", "function": {"name": "ask"}}
    (call,) = ask("sagemaker_chat", tools=[tool], tool_choice=chosen).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("ask", '{"status": 200}')


def test_the_inference_components_name_is_no_parameter(ask: Any) -> None:
    assert ask("sagemaker", model_id="component").choices[0].message.content == ANSWER
    assert ask("sagemaker_chat", model_id="component").choices[0].message.content == ANSWER


@pytest.mark.parametrize(
    ("provider", "stream"), [("sagemaker", True), ("sagemaker_chat", True), ("sagemaker_chat", False)]
)
def test_the_containers_refusal_is_told(ask: Any, provider: str, stream: bool) -> None:
    with pytest.raises(litellm.BadRequestError, match="context is 1024"):
        ask(provider, max_tokens=100_000, stream=stream)


@pytest.mark.xfail(
    raises=litellm.APIConnectionError,
    strict=True,
    reason="litellm 1.106.2 takes httpx's Response for a dict: llms/sagemaker/completion/handler.py",
)
def test_the_refusal_of_a_whole_text_is_told(ask: Any) -> None:
    with pytest.raises(litellm.BadRequestError):
        ask("sagemaker", max_tokens=100_000)
