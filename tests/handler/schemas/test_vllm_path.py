"""What is checked of a body before vLLM's serving classes see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handler.engine.api_routes import Route
from handler.engine.generation.prompt_renderer import MOST_COUNTED
from handler.errors import ClientError, InvalidField, MissingField, ModelNotFound, UnsupportedField
from handler.neuron.sampling_limits import SUPPORTED, SamplingLimits
from handler.schemas.openai import vllm_path as full
from tests.handler.schemas.parsing_engine import ParsingEngine
from tests.handler.scripted_tokenizer import VOCAB_SIZE

LONG = "x" * (MOST_COUNTED + 1)
HELLO = [{"role": "user", "content": "Hello"}]
CHAT = {"messages": HELLO}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SCHEMA_FORMAT = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
DEVICE = SamplingLimits(on_device=True, global_topk=64, supported=SUPPORTED)
HUGE = "100000000000000000000"  # vLLM makes a number of it, which does not fit into the message to its core
STATIC = SamplingLimits(on_device=True, global_topk=64, supported=frozenset())


def parsed(document: dict[str, Any], route: Route = Route.CHAT, **engine: Any) -> dict[str, Any]:
    """What vLLM is asked."""
    made: Any = ParsingEngine(**engine)
    full.parse(route, document, made, {})
    return dict(made.serving.asked[-1][1])


def refused(document: dict[str, Any], route: Route = Route.CHAT, **engine: Any) -> ClientError:
    made: Any = ParsingEngine(**engine)
    with pytest.raises(ClientError) as caught:
        full.parse(route, document, made, {})
    assert made.serving.asked == []
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"guided_choice": ["a"]}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"use_beam_search": True, "n": 2}, "use_beam_search"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "f"}}}, "tool_choice"),
        ({"n": 2, "seed": 1}, "seed"),
        ({"n": 2, "repetition_penalty": 1.1}, "repetition_penalty"),
        ({"n": 2, "frequency_penalty": 1}, "frequency_penalty"),
        ({"n": 2, "min_p": 0.1}, "min_p"),
        ({"n": 2, "min_tokens": 2}, "min_tokens"),
        ({"n": 2, "top_k": 65}, "top_k"),
    ],
)
def test_what_the_device_would_ignore_is_refused_on_this_path_too(fields: dict[str, Any], param: str) -> None:
    error = refused({**CHAT, **fields}, limits=DEVICE)
    assert error.param == param
    parsed({**CHAT, **fields})  # sampled on the CPU, all of it counts


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}}, "text.format"),
        ({"seed": 1}, "seed"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"top_k": 65}, "top_k"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_the_same_holds_for_a_response(fields: dict[str, Any], param: str) -> None:
    assert refused({"input": "a", **fields}, Route.RESPONSES, limits=DEVICE).param == param
    parsed({"input": "a", **fields}, Route.RESPONSES)


def test_a_line_without_a_prompts_logprobs_says_so_wherever_it_samples() -> None:
    none = SamplingLimits(on_device=False, global_topk=None, supported=None, prompt_logprobs=False)
    assert refused({**CHAT, "prompt_logprobs": 1}, limits=none).param == "prompt_logprobs"
    assert refused({"prompt": "a", "echo": True, "logprobs": 0}, Route.COMPLETIONS, limits=none).param == "logprobs"
    parsed({"prompt": "a", "echo": True}, Route.COMPLETIONS, limits=none)
    parsed({**CHAT, "logprobs": True}, limits=none)


@pytest.mark.parametrize(
    ("document", "route", "param"),
    [
        ({"prompt": LONG}, Route.TOKENIZE, "prompt"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]}, Route.TOKENIZE, "messages"),
        ({"prompt": ["a", LONG], "truncate_prompt_tokens": 3}, Route.COMPLETIONS, "prompt"),
        ({"input": [LONG], "truncate_prompt_tokens": 3}, Route.EMBEDDINGS, "input"),
    ],
)
def test_tokens_are_counted_of_so_much_text_and_no_more(document: dict[str, Any], route: Route, param: str) -> None:
    """vLLM counts in one thread: whoever comes next waits for it, a second for each million characters."""
    error = refused(document, route, max_characters=9)
    assert (type(error), error.param) == (InvalidField, param)
    parsed(document, route, max_characters=2 * MOST_COUNTED)


@pytest.mark.parametrize("given", [True, 1, "true"])
def test_a_search_for_beams_says_where_it_ends(given: object) -> None:
    """Found by the fuzz: vLLM's search fills the context, which took longer than the deadline."""
    search = {**CHAT, "use_beam_search": given, "n": 2}
    error = refused(search, max_output=None)
    assert (type(error), error.param) == (MissingField, "max_tokens")
    for named in ({"max_tokens": 5}, {"max_completion_tokens": 5}):
        assert parsed({**search, **named}, max_output=None)["use_beam_search"] == given
    parsed(search, max_output=9)
    parsed(search, max_output=None, default_output=9)
    parsed({"prompt": "a", "use_beam_search": given}, Route.COMPLETIONS, max_output=None)  # 16 tokens
    parsed({**CHAT, "use_beam_search": False, "n": 2}, max_output=None)


def test_a_sampler_that_is_fixed_has_one_choice_only() -> None:
    assert refused({**CHAT, "n": 2}, limits=STATIC).param == "n"
    assert refused({"input": "a", "temperature": 0.5}, Route.RESPONSES, limits=STATIC).param == "temperature"


@pytest.mark.parametrize(
    ("fields", "param", "kind"),
    [
        ({"n": 5}, "n", InvalidField),
        ({"n": 0}, "n", InvalidField),
        ({"temperature": "1"}, "temperature", InvalidField),
        ({"max_tokens": 0}, "max_tokens", InvalidField),
        ({"max_tokens": 10**7}, "max_tokens", InvalidField),
        ({"max_completion_tokens": 10**7}, "max_completion_tokens", InvalidField),
        ({"stop": ["a", ""]}, "stop", InvalidField),
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids", InvalidField),
        ({"priority": 2**70}, "priority", InvalidField),
        ({"vllm_xargs": {"a": 2**64}}, "vllm_xargs.a", InvalidField),
        ({"priority": 1}, "priority", UnsupportedField),
        ({"structured_outputs": []}, "structured_outputs", InvalidField),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", InvalidField),
        ({"guided_choice": ["a"], "structured_outputs": {"regex": "a"}}, "guided_choice", InvalidField),
        ({"request_id": "a\n"}, "request_id", InvalidField),
        ({"request_id": "a" * 129}, "request_id", InvalidField),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize", InvalidField),
        ({"model": "other"}, "model", ModelNotFound),
        ({"stream_options": {"include_usage": True}}, "stream_options", InvalidField),
        ({"stream_interval": HUGE}, "stream_interval", InvalidField),
        ({"routed_experts_prompt_start": HUGE}, "routed_experts_prompt_start", InvalidField),
        ({"repetition_detection": {"min_count": HUGE}}, "repetition_detection.min_count", InvalidField),
        ({"repetition_detection": {"max_pattern_size": 257}}, "repetition_detection.max_pattern_size", InvalidField),
        ({"repetition_detection": [3]}, "repetition_detection", InvalidField),
    ],
)
def test_what_is_wrong_on_either_path_is_named(fields: dict[str, Any], param: str, kind: type[ClientError]) -> None:
    error = refused({**CHAT, "cache_salt": "a", **fields})
    assert error.param == param
    assert isinstance(error, kind)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream_interval", 8.0),
        ("routed_experts_prompt_start", 0),
        ("repetition_detection", {"max_pattern_size": 256, "min_count": 2}),
        ("repetition_detection", None),
    ],
)
def test_fields_of_later_versions_are_passed_on(name: str, value: object) -> None:
    assert parsed({**CHAT, name: value})[name] == value


@pytest.mark.parametrize(
    ("route", "document", "param"),
    [
        (Route.CHAT, {}, "messages"),
        (Route.COMPLETIONS, {"prompt": []}, "prompt"),
        (Route.RESPONSES, {"input": None}, "input"),
        (Route.EMBEDDINGS, {}, "input"),
        (Route.DETOKENIZE, {"tokens": []}, "tokens"),
    ],
)
def test_what_a_request_is_about_must_be_there(route: Route, document: dict[str, Any], param: str) -> None:
    error = refused(document, route)
    assert isinstance(error, MissingField)
    assert error.param == param


def test_the_prompt_alone_may_be_echoed() -> None:
    body = {"prompt": "a", "echo": True, "max_tokens": 0}
    assert parsed(body, Route.COMPLETIONS)["max_tokens"] == 0
    assert refused({**body, "echo": False}, Route.COMPLETIONS).param == "max_tokens"


def test_the_older_names_of_structured_output_are_understood() -> None:
    asked = parsed({**CHAT, "guided_json": {"type": "object"}, "guided_whitespace_pattern": " "})
    assert asked["structured_outputs"] == {"json": {"type": "object"}, "whitespace_pattern": " "}
    assert "guided_json" not in asked


def test_json_mode_of_a_response_is_the_schema_of_an_object() -> None:
    text = {"format": {"type": "json_object"}, "verbosity": "low"}
    schema = {"type": "json_schema", "name": "object", "schema": {"type": "object"}}
    assert parsed({"input": "a", "text": text}, Route.RESPONSES)["text"] == {"format": schema, "verbosity": "low"}
    assert refused({"input": "a", "text": text}, Route.RESPONSES, limits=DEVICE).param == "text.format"


def test_a_response_has_functions_for_tools_and_no_more_tokens_than_it_may() -> None:
    parsed({"input": "a", "tools": [{"type": "function", "name": "f"}]}, Route.RESPONSES)
    for tool in ("web_search", "mcp", "code_interpreter"):
        assert refused({"input": "a", "tools": [{"type": tool}]}, Route.RESPONSES).param == "tools[0]"
    assert refused({"input": "a", "max_output_tokens": 10**7}, Route.RESPONSES).param == "max_output_tokens"


LONG = "(a|b)" * 1000
MANY = {"type": "object", "properties": {f"k{number}": {"type": "string"} for number in range(5000)}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": LONG}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": LONG}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"] * 20_000}}, "structured_outputs"),
        ({"guided_regex": LONG}, "structured_outputs"),
        ({"structured_outputs": {"json": {"type": "string", "pattern": LONG}}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"patternProperties": {LONG: {}}}}}, "structured_outputs"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": MANY}}}, "response_format"),
        ({"tools": [{"function": {"name": "f", "parameters": MANY}}], "tool_choice": "required"}, "tools[0]"),
    ],
)
def test_a_grammar_that_would_stop_everything_while_it_is_read_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused({**CHAT, **fields}).param == param


def test_tools_that_the_model_may_call_are_no_grammar() -> None:
    parsed({**CHAT, "tools": [{"function": {"name": "f", "parameters": MANY}}]})


def part(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.mark.parametrize(
    "url",
    [
        "http://a.org/x.png",
        "HTTPS://a.org/x.png",
        "file:///etc/passwd",
        "ftp://a.org/x",
        "//a.org/x",
        " http://a.org/x",
        "",
    ],
)
def test_media_come_from_nowhere_unless_allowed(url: str) -> None:
    error = refused(part(url), multimodal=True)
    assert error.param == "messages[0].content[0].image_url"


def test_media_come_from_allowed_hosts_and_inline() -> None:
    domains = ("a.org",)
    parsed(part("https://a.org/x.png"), multimodal=True, domains=domains)
    parsed(part("data:image/png;base64,AAAA"), multimodal=True)
    for url in ("https://b.org/x.png", "https://a.org.b.org/", "https://a.org@b.org/", "https://[a.org", "file:///x"):
        assert refused(part(url), multimodal=True, domains=domains).param
    response = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://b.org/x"}]}]}
    assert refused(response, Route.RESPONSES, multimodal=True, domains=domains).param == "input[0].content[0].image_url"


IMAGE = {"content": [{"type": "image_url", "image_url": {"url": "https://b.org/x"}}]}


@pytest.mark.parametrize(
    ("route", "document", "field"),
    [
        (
            Route.RESPONSES,
            {"input": [{"output": [{"type": "input_image", "image_url": "https://b.org/x"}]}]},
            "input[0]",
        ),
        (Route.SCORE, {"data_1": "a", "data_2": [IMAGE]}, "data_2[0]"),
        (Route.SCORE, {"queries": IMAGE, "documents": "a"}, "queries"),
        (Route.RERANK, {"query": IMAGE, "documents": ["a"]}, "query"),
        (Route.RERANK, {"query": "a", "documents": IMAGE}, "documents"),
    ],
)
def test_media_come_from_nowhere_wherever_a_body_has_parts(route: Route, document: dict[str, Any], field: str) -> None:
    assert (refused(document, route, multimodal=True).param or "").startswith(field)


def test_a_model_for_text_takes_no_media() -> None:
    assert isinstance(refused(part("data:image/png;base64,AAAA")), UnsupportedField)


def test_a_model_for_text_takes_its_own_reasoning_back() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}
    assert parsed({"input": [*HELLO, thought]}, Route.RESPONSES)


TOO_MANY = 4097


@pytest.mark.parametrize(
    ("route", "document", "field"),
    [
        (Route.CHAT, {"messages": HELLO * TOO_MANY}, "messages"),
        (
            Route.CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * TOO_MANY}]},
            "messages[0]",
        ),
        (Route.CHAT, {"messages": [{"role": "user", "content": [1] * TOO_MANY}]}, "messages[0]"),
        (Route.RESPONSES, {"input": HELLO * TOO_MANY}, "input"),
        (Route.RESPONSES, {"input": [1] * TOO_MANY}, "input"),
        (Route.RESPONSES, {"input": [*HELLO, {"role": "user", "content": [{}] * TOO_MANY}]}, "input[1]"),
        (Route.RESPONSES, {"input": [{"type": "function_call_output", "output": [{}] * TOO_MANY}]}, "input[0]"),
        (Route.SCORE, {"queries": "a", "documents": {"content": [{}] * TOO_MANY}}, "documents"),
        (Route.RERANK, {"query": {"content": [{}] * TOO_MANY}, "documents": ["a"]}, "query"),
        (Route.EMBEDDINGS, {"input": ["a"] * TOO_MANY}, "input"),
        (Route.TOKENIZE, {"messages": HELLO * TOO_MANY}, "messages"),
    ],
)
def test_more_items_than_can_be_looked_at_while_others_wait(route: Route, document: dict[str, Any], field: str) -> None:
    error = refused(document, route)
    assert isinstance(error, InvalidField)
    assert (error.param or "").startswith(field)
    assert "4,097" in error.message
    assert parsed({"input": [1] * TOO_MANY}, Route.EMBEDDINGS)  # the tokens of one text


def test_the_parts_of_all_messages_together_have_a_limit() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}] * 2731}
    assert parsed({"messages": [message] * 2}, Route.CHAT)
    assert "8,193" in refused({"messages": [message] * 3}, Route.CHAT).message


def test_a_completion_of_null_tokens_is_one_that_does_not_say() -> None:
    """vLLM ends in an AssertionError after it has made them all."""
    assert parsed({"prompt": ["a", "b"], "max_tokens": None}, Route.COMPLETIONS)["max_tokens"] == 16
    assert parsed({"prompt": ["a", "b"], "max_tokens": 5}, Route.COMPLETIONS)["max_tokens"] == 5
    assert parsed({**CHAT, "n": 2, "max_tokens": None})["max_tokens"] is None


@pytest.mark.parametrize(
    ("route", "document"),
    [(Route.TOKENIZE, {"prompt": "a"}), (Route.DETOKENIZE, {"tokens": [1]}), (Route.EMBEDDINGS, {"input": "a"})],
)
def test_a_route_of_one_reply_does_not_stream(route: Route, document: dict[str, Any]) -> None:
    error = refused({**document, "stream": True}, route)
    assert isinstance(error, UnsupportedField)
    assert error.param == "stream"
    assert not isinstance(parsed({**document, "stream": False}, route), ClientError)


@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        (Route.CHAT, {"logit_bias": {"abc": 3}}, "logit_bias"),
        (Route.CHAT, {"logit_bias": {"-1": 3}}, "logit_bias"),
        (Route.CHAT, {"ignore_eos": True, "structured_outputs": {"regex": "[a-z]{3}"}}, "ignore_eos"),
        (Route.CHAT, {"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
        (Route.RESPONSES, {"ignore_eos": True, "text": {"format": SCHEMA_FORMAT}}, "ignore_eos"),
        (Route.RESPONSES, {"text": {"format": {**SCHEMA_FORMAT, "schema": {"$ref": "#"}}}}, "text"),
        (Route.RESPONSES, {"tool_choice": "required"}, "tool_choice"),
        (Route.RESPONSES, {"top_logprobs": 5}, "top_logprobs"),
        (Route.RESPONSES, {"top_logprobs": 5, "include": ["reasoning.encrypted_content"]}, "top_logprobs"),
        (Route.RESPONSES, {"tool_choice": {"type": "function", "name": "f"}, "tools": []}, "tool_choice"),
    ],
)
def test_what_vllm_would_ignore_or_misname_is_rejected(route: Route, fields: dict[str, Any], param: str) -> None:
    assert refused({"messages": HELLO, "input": "a", **fields}, route).param == param


def test_text_is_no_grammar() -> None:
    assert parsed({"input": "a", "ignore_eos": True, "text": {"verbosity": "low"}}, Route.RESPONSES)["ignore_eos"]
    assert parsed({"messages": HELLO, "ignore_eos": True, "response_format": {"type": "text"}})["ignore_eos"]


def test_the_last_event_of_a_failed_response_has_its_type() -> None:
    made: Any = ParsingEngine()
    broken = full.parse(Route.RESPONSES, {"input": "a", "stream": True}, made, {}).reply.broken(MissingField("a", "b"))
    event, data = broken.decode().split("\n", 1)
    assert event == "event: error"
    document = json.loads(data.removeprefix("data: "))
    assert (document["type"], document["code"], document["error"]["param"]) == ("error", MissingField.code, "a")
