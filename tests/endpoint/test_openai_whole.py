"""OpenAI's API beyond plain text, with the `openai` client, against the running endpoint: exact where the answer is."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import is_016

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
ANSWER = by_name("ping").answer
SCHEMA = {
    "type": "object",
    "properties": {"status": {"enum": [200]}, "stage": {"enum": ["ready"]}},
    "required": ["status", "stage"],
    "additionalProperties": False,
}
FIXED = '{"status": 200, "stage": "ready"}'
TOOLS: Any = [{"type": "function", "function": {"name": "ask", "description": "asks", "parameters": SCHEMA}}]
NAMED: Any = {"type": "function", "function": {"name": "ask"}}


@pytest.fixture(scope="module")
def client(endpoint: ServeProcess) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="unused", max_retries=0, timeout=60)


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "sample", "messages": MESSAGES, "temperature": 0, **fields})


def complete(client: openai.OpenAI, **fields: Any) -> Any:
    return client.completions.create(**{"model": "sample", "prompt": "a", "temperature": 0, "max_tokens": 3, **fields})


def refused(call: Any) -> openai.BadRequestError:
    import openai

    with pytest.raises(openai.BadRequestError) as caught:
        call()
    return caught.value


def test_a_json_schema_is_kept_to_the_letter(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "fixed", "schema": SCHEMA}}
    whole = chat(client, response_format=form)
    assert whole.choices[0].message.content == FIXED
    assert whole.choices[0].finish_reason == "stop"
    streamed = chat(client, response_format=form, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == FIXED


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"choice": ["healthy", "ill"]}},
        {"guided_choice": ["healthy", "ill"]},
        {"structured_outputs": {"regex": "(healthy|ill)"}},
        {"guided_regex": "(healthy|ill)"},
        {"structured_outputs": {"grammar": 'root ::= "healthy" | "ill"'}},
    ],
)
def test_a_choice_is_one_of_those_given(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    assert chat(client, extra_body=fields).choices[0].message.content in {"healthy", "ill"}


def test_a_named_tool_is_called_with_its_schemas_arguments(client: openai.OpenAI) -> None:
    whole = chat(client, tools=TOOLS, tool_choice=NAMED)
    (call,) = whole.choices[0].message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == ("function", "ask", FIXED)
    assert call.id
    deltas = [chunk.choices[0].delta for chunk in chat(client, tools=TOOLS, tool_choice=NAMED, stream=True)]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    # 0.24 streams the text that the model wrote, whose grammar allows other spaces.
    assert json.loads("".join(call.function.arguments or "" for call in calls)) == json.loads(FIXED)
    assert [call.function.name for call in calls if call.function.name] == ["ask"]


def test_a_required_tool_is_called(client: openai.OpenAI) -> None:
    whole = chat(client, tools=TOOLS, tool_choice="required", max_tokens=200, parallel_tool_calls=False)
    calls = whole.choices[0].message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [("ask", json.loads(FIXED))]
    assert whole.choices[0].finish_reason == "tool_calls"


def test_tools_may_be_left_alone_and_a_conversation_about_them_goes_on(client: openai.OpenAI) -> None:
    assert chat(client, tools=TOOLS).choices[0].message.content == ANSWER
    assert chat(client, tools=TOOLS, tool_choice="none").choices[0].message.content == ANSWER
    call = {"id": "1", "type": "function", "function": {"name": "ask", "arguments": FIXED}}
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello.", "tool_calls": [call]},
        *MESSAGES,
    ]
    assert chat(client, messages=turns, tools=TOOLS).choices[0].message.content == ANSWER


@pytest.mark.parametrize("large", [{}, {"n": 64, "logprobs": True, "top_logprobs": 8, "temperature": 1}])
def test_a_tool_call_cut_short_says_what_mends_it(client: openai.OpenAI, large: dict[str, Any]) -> None:
    """0.24 and later answer with what there is, and say that it is cut, as OpenAI does."""
    cut = partial(chat, client, tools=TOOLS, tool_choice="required", max_tokens=2, **large)
    if is_016():
        assert refused(cut).param == "max_tokens"
    else:
        for choice in cut().choices:
            assert (choice.finish_reason, choice.message.tool_calls) == ("length", None)


def test_a_tool_choice_without_its_tool_is_refused(client: openai.OpenAI) -> None:
    other: Any = {"type": "function", "function": {"name": "other"}}
    assert "tool" in refused(lambda: chat(client, tools=TOOLS, tool_choice=other)).message
    assert "tools" in refused(lambda: chat(client, tool_choice="required")).message


def test_logprobs(client: openai.OpenAI) -> None:
    choice = chat(client, logprobs=True, top_logprobs=3, max_tokens=6).choices[0]
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content == ANSWER[: len(choice.message.content)]
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert bytes(token.bytes).decode() == token.token
    streamed = chat(client, logprobs=True, top_logprobs=3, max_tokens=6, stream=True)
    found = [token for chunk in streamed for token in (chunk.choices[0].logprobs or EMPTY).content]
    assert [token.token for token in found] == [token.token for token in tokens]


class EMPTY:
    content = ()


def test_several_choices(client: openai.OpenAI) -> None:
    sampled = {"n": 3, "temperature": 1.5, "seed": 7, "max_tokens": 8}
    whole = chat(client, **sampled)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1
    assert whole.usage.completion_tokens <= 24
    streamed = ["", "", ""]
    ended = set()
    for chunk in chat(client, **sampled, stream=True):
        (choice,) = chunk.choices
        streamed[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            ended.add(choice.index)
    assert streamed == texts
    assert ended == {0, 1, 2}


def test_more_sequences_than_a_request_may_have_are_refused(client: openai.OpenAI) -> None:
    assert refused(lambda: chat(client, n=1000, temperature=1)).param == "n"
    assert refused(lambda: complete(client, prompt=["a"] * 1000)).param == "prompt"


def test_beams(client: openai.OpenAI) -> None:
    beams = complete(client, prompt="Question: Who", n=3, extra_body={"use_beam_search": True})
    assert len({choice.text for choice in beams.choices}) == 3


@pytest.mark.vllm_016("later versions refuse a stream of beams")
def test_many_beams_are_one_event_of_a_stream(client: openai.OpenAI) -> None:
    (event,) = complete(client, n=4, max_tokens=30, stream=True, extra_body={"use_beam_search": True})
    assert len({choice.text for choice in event.choices}) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_search_without_an_end_is_refused_before_it_begins(client: openai.OpenAI, stream: bool) -> None:
    """Found by the fuzz: it takes until the deadline, and answers nothing."""
    error = refused(lambda: chat(client, n=2, stream=stream, extra_body={"use_beam_search": True}))
    assert (error.param, error.code) == ("max_tokens", "missing_field")


@pytest.mark.parametrize("stream", [False, True])
def test_beams_are_the_same_whatever_is_drawn_beside_them(endpoint: ServeProcess, stream: bool) -> None:
    """Found by the fuzz: a drawn token that is none of the likeliest put vLLM's count of them out."""
    body = {"messages": MESSAGES, "max_tokens": 60, "use_beam_search": True, "stream": stream}

    def texts(temperature: float) -> Any:
        reply = endpoint.client.post("/v1/chat/completions", json={**body, "temperature": temperature})
        assert reply.status_code == 200, reply.text
        if not stream:
            return [choice["message"]["content"] for choice in reply.json()["choices"]]
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        return [choice["delta"] for event in events for choice in event["choices"]]

    assert texts(1000 if is_016() else 2) == texts(0)  # 0.24 takes no temperature above 2


def test_usage_at_the_end_of_a_stream(client: openai.OpenAI) -> None:
    *chunks, last = chat(client, logprobs=True, max_tokens=5, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert (last.usage.completion_tokens, last.usage.total_tokens) == (5, last.usage.prompt_tokens + 5)


def test_every_sequence_of_a_stream_echoes_its_prompt_with_its_logprobs(client: openai.OpenAI) -> None:
    """Found by the fuzz: vLLM lost those of sequences that entered later than others of their prompt."""
    asked = {"n": 64, "echo": True, "logprobs": 2, "temperature": 1, "extra_body": {"ignore_eos": True}}
    stream = complete(client, prompt=[[1, 2], [3]], stream=True, **asked)
    tokens: Counter[int] = Counter()
    for chunk in stream:
        for choice in chunk.choices:
            tokens[choice.index] += len(choice.logprobs.tokens) if choice.logprobs else 0
    assert tokens == {index: 5 if index < 64 else 4 for index in range(128)}


def test_echo_and_the_prompts_own_logprobs(client: openai.OpenAI) -> None:
    prompt = f"Question: {QUESTION}\nAnswer:"
    assert complete(client, prompt=prompt, max_tokens=100, echo=True).choices[0].text == f"{prompt} {ANSWER}"
    alone = complete(client, prompt=prompt, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert alone.text == prompt
    assert alone.logprobs.token_logprobs[0] is None
    assert len(alone.logprobs.tokens) == len(alone.logprobs.token_logprobs)
    streamed = complete(client, prompt=prompt, max_tokens=100, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == f"{prompt} {ANSWER}"


def test_several_prompts_are_answered_in_their_order(client: openai.OpenAI, endpoint: ServeProcess) -> None:
    names = ["ping", "hello", "who-are-you"]
    prompts = [f"Question: {by_name(name).questions[0]}\nAnswer:" for name in names]
    ids = [endpoint.client.post("/tokenize", json={"prompt": prompt}).json()["tokens"] for prompt in prompts]
    for given in (prompts, ids):
        whole = complete(client, prompt=given, max_tokens=100)
        assert [choice.text.strip() for choice in whole.choices] == [by_name(name).answer for name in names]
        texts = ["", "", ""]
        for chunk in complete(client, prompt=given, max_tokens=100, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        assert [text.strip() for text in texts] == [by_name(name).answer for name in names]


@pytest.mark.parametrize(
    "fields", [{"prompt": [QUESTION, "a"]}, {"prompt": QUESTION, "logprobs": 1}, {"prompt": QUESTION}]
)
def test_max_tokens_of_null_is_openais_default(endpoint: ServeProcess, fields: dict[str, Any]) -> None:
    """Found by the fuzz: vLLM's classes make all tokens for `max_tokens: null`, and fail at the end of them."""

    def replies(**limit: None) -> list[list[str]]:
        body = {**fields, "temperature": 0, "ignore_eos": True, **limit}
        whole = endpoint.client.post("/v1/completions", json=body)
        assert whole.json()["usage"]["completion_tokens"] == 16 * len(whole.json()["choices"])
        stream = endpoint.client.post("/v1/completions", json={**body, "stream": True}).text
        texts = {choice["index"]: "" for choice in whole.json()["choices"]}
        for line in stream.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] += choice["text"]
        return [[choice["text"] for choice in whole.json()["choices"]], list(texts.values())]

    assert replies(max_tokens=None) == replies()


def test_biases_bans_and_allowed_tokens_count(client: openai.OpenAI, endpoint: ServeProcess) -> None:
    (first,) = endpoint.client.post("/tokenize", json={"prompt": "/", "add_special_tokens": False}).json()["tokens"]
    assert chat(client, max_tokens=1).choices[0].message.content == "/"
    assert chat(client, max_tokens=1, logit_bias={str(first): -100}).choices[0].message.content != "/"
    assert chat(client, max_tokens=1, extra_body={"bad_words": ["/"]}).choices[0].message.content != "/"
    only = chat(client, max_tokens=3, extra_body={"allowed_token_ids": [first]})
    assert only.choices[0].message.content == "///"
    assert refused(lambda: chat(client, logit_bias={"999999": 1})).param == "logit_bias"


def test_token_ids_come_back_when_asked_for(client: openai.OpenAI, endpoint: ServeProcess) -> None:
    reply = chat(client, max_tokens=4, extra_body={"return_token_ids": True})
    prompt = endpoint.client.post("/tokenize", json={"messages": MESSAGES}).json()["tokens"]
    assert reply.prompt_token_ids == prompt
    text = endpoint.client.post("/detokenize", json={"tokens": reply.choices[0].token_ids}).json()["prompt"]
    assert text == reply.choices[0].message.content


def test_responses(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="sample", input=QUESTION, temperature=0)
    assert whole.output_text == ANSWER
    assert whole.status == "completed"
    form: Any = {"format": {"type": "json_schema", "name": "fixed", "schema": SCHEMA}}
    assert client.responses.create(model="sample", input=MESSAGES, text=form, temperature=0).output_text == FIXED
    with client.responses.stream(model="sample", input=QUESTION, temperature=0) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == ANSWER
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    with client.responses.stream(model="sample", input=MESSAGES, text=form, temperature=0) as stream:
        created = next(iter(stream))
        assert created.type == "response.created"
        assert created.response.text is not None
        assert created.response.text.format is not None
        assert created.response.text.format.type == "json_schema"
        assert created.response.text.format.schema_ == SCHEMA
        assert stream.get_final_response().output_text == FIXED


def test_a_response_is_refused_alike_whole_and_streamed(client: openai.OpenAI) -> None:
    for stream in (False, True):
        create = partial(client.responses.create, model="sample", input="a", stream=stream)
        assert refused(lambda create=create: create(top_logprobs=21)).param == "top_logprobs"
        assert refused(lambda create=create: create(tool_choice="required")).param == "tool_choice"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "tool_search_output", "tools": [], "call_id": "c", "execution": "server", "status": "in_progress"},
        {"type": "item_reference", "id": "x"},
        {"id": "x"},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "a"}},
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"},
        pytest.param(
            {"type": "reasoning", "id": "r", "summary": []},
            marks=pytest.mark.vllm_016("later versions take reasoning without text"),
            id="reasoning",
        ),
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "no"}],
        },
    ],
    ids=lambda item: item.get("type", "no type"),
)
def test_an_item_that_cannot_become_a_message_is_refused_by_its_number(client: openai.OpenAI, item: Any) -> None:
    items: Any = [*MESSAGES, item]
    assert refused(lambda: client.responses.create(model="sample", input=items)).param == f"input[{len(MESSAGES)}]"


def test_what_an_assistant_said_and_called_goes_on(client: openai.OpenAI) -> None:
    said = {"type": "output_text", "text": "a", "annotations": []}
    items: Any = [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        *MESSAGES,
    ]
    assert client.responses.create(model="sample", input=items, max_output_tokens=4).output_text


def test_a_response_has_its_log_probabilities_and_no_field_of_another_route(client: openai.OpenAI) -> None:
    """Found by the fuzz: what is done to the log probabilities of beams was done to these, and ended in a 500."""
    asked: Any = {"model": "sample", "input": "a", "max_output_tokens": 3, "include": ["message.output_text.logprobs"]}
    assert len(client.responses.create(**asked, temperature=0).output[0].content[0].logprobs) == 3
    error = refused(lambda: client.responses.create(**asked, extra_body={"use_beam_search": 4}))
    assert error.param == "use_beam_search"


def test_responses_that_would_be_stored_are_refused(client: openai.OpenAI) -> None:
    import openai

    assert refused(lambda: client.responses.create(model="sample", input="a", background=True)).param == "background"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="sample", input="a", previous_response_id="resp_1")


def test_tokens_and_back(endpoint: ServeProcess) -> None:
    text = "Wie heißt das? 漢字 \U0001f600"
    reply = endpoint.client.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert reply["count"] == len(reply["tokens"])
    assert reply["max_model_len"] == 1024
    assert endpoint.client.post("/detokenize", json={"tokens": reply["tokens"]}).json() == {"prompt": text}


def test_a_long_conversation_has_the_same_prompt_on_every_way(endpoint: ServeProcess) -> None:
    """Its chat template is rendered in a thread for vLLM's classes."""
    body = {"messages": [{"role": "user", "content": f"{number}"} for number in range(60)], "max_tokens": 2}
    post = endpoint.client.post
    plain, full = (post("/v1/chat/completions", json={**body, **more}).json() for more in ({}, {"logprobs": True}))
    assert plain["usage"]["prompt_tokens"] == full["usage"]["prompt_tokens"] > 120
    assert post("/tokenize", json={"messages": body["messages"]}).json()["count"] == full["usage"]["prompt_tokens"]


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})])
def test_what_has_one_reply_is_not_streamed(endpoint: ServeProcess, path: str, body: dict[str, Any]) -> None:
    reply = endpoint.client.post(path, json={**body, "stream": True})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/score", {"text_1": "a", "text_2": "b"}),
        ("/classify", {"input": "a"}),
        ("/pooling", {"input": "a"}),
    ],
)
def test_routes_of_other_models_are_named(endpoint: ServeProcess, path: str, body: dict[str, Any]) -> None:
    error = endpoint.client.post(path, json=body).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_task", path)


def test_embeddings_are_refused_by_name(client: openai.OpenAI) -> None:
    error = refused(lambda: client.embeddings.create(model="sample", input="a"))
    assert error.code == "unsupported_task"
    assert "embedding" in error.message


def test_invocations_takes_all_of_it(endpoint: ServeProcess) -> None:
    post = endpoint.client.post
    body = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": NAMED, "temperature": 0}
    call = post("/invocations", json=body).json()["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["arguments"] == FIXED
    response = post("/invocations", json={"input": QUESTION, "temperature": 0}).json()
    assert response["output"][0]["content"][0]["text"] == ANSWER
    attribute = {"X-Amzn-SageMaker-Custom-Attributes": "trace=1; route=/tokenize"}
    assert post("/invocations", json={"messages": MESSAGES}, headers=attribute).json()["tokens"][0] == 0
    wrong = {"X-Amzn-SageMaker-Custom-Attributes": "route=/v1/audio"}
    assert post("/invocations", json={"messages": MESSAGES}, headers=wrong).status_code == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "foo"}, "name": "a"}}}, None),
        ({"structured_outputs": {"regex": "("}}, None),
        ({"structured_outputs": {"choice": []}}, None),
        ({"structured_outputs": 5}, "structured_outputs"),
        ({"guided_choice": ["a"], "structured_outputs": {"regex": "a"}}, "guided_choice"),
        ({"tools": [{"function": {}}], "tool_choice": NAMED}, None),
        ({"tools": "x"}, "tools"),
        ({"logprobs": True, "top_logprobs": 100_000}, "logprobs"),
        ({"logprobs": True, "temperature": -1}, "temperature"),
        ({"logprobs": True, "stop": [""]}, "stop"),
        ({"logprobs": True, "max_tokens": 999_999}, None),
        ({"n": 2, "temperature": 0}, "n"),
        ({"chat_template": "{{ 7 * 7 }}", "messages": MESSAGES}, None),
        ({"request_id": "a\nb"}, "request_id"),
        ({"tool_choise": "required"}, "tool_choise"),
        ({"priority": 3}, None),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_quoted(
    endpoint: ServeProcess, fields: dict[str, Any], param: str | None
) -> None:
    secret = "correct horse battery staple"
    body = {"messages": [{"role": "user", "content": secret}], **fields}
    for stream in (False, True):
        reply = endpoint.client.post("/v1/chat/completions", json={**body, "stream": stream})
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert (error["param"] or "").startswith(param or "")
        assert secret not in reply.text
        assert "Traceback" not in reply.text
        assert len(error["message"]) < 600
    assert secret not in endpoint.log


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.png", "file:///etc/passwd", "https://example.com/x.png"])
def test_no_media_is_fetched(endpoint: ServeProcess, url: str) -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]
    reply = endpoint.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "messages[0].content[1]"
