"""From a TGI or LMI body to generations: every parameter works, or is rejected with an error that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handler.engine.generation.generation import Generation, Grammar
from handler.errors import ClientError
from handler.neuron.sampling_limits import LORA_ON_CPU, SamplingLimits
from handler.schemas import dispatch
from handler.schemas.request_fields import Body, unsupported
from handler.schemas.tgi_lmi.inputs_fields import MAX_TEXTS
from handler.schemas.tgi_lmi.request_options import RequestOptions
from tests.handler.schemas.parsing_engine import CONTEXT, ParsingEngine
from tests.handler.scripted_tokenizer import BOS, STRICT_TEMPLATE, text_of

UNSERVED = unsupported(Body.PARAMETERS, vllm=False)
ENGINE: Any = ParsingEngine()
ON_DEVICE: Any = ParsingEngine(limits=SamplingLimits(True, 256, None))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TGI, LMI = RequestOptions(inputs_schema="tgi"), RequestOptions()


def generation(
    parameters: dict[str, Any], asked: RequestOptions = LMI, engine: Any = ENGINE, **body: Any
) -> Generation:
    call: Any = dispatch.parse({"inputs": "abc", "parameters": parameters, **body}, engine, asked)
    found: Generation = getattr(call, "call", call).generation
    return found


def refused(parameters: dict[str, Any], asked: RequestOptions = LMI, engine: Any = ENGINE, **body: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        dispatch.parse({"inputs": "abc", "parameters": parameters, **body}, engine, asked)
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "asked", "temperature"),
    [
        ({}, LMI, 0.0),
        ({}, TGI, 0.0),
        ({"do_sample": False}, LMI, 0.0),
        ({"do_sample": True}, LMI, None),
        ({"do_sample": True}, TGI, None),
        ({"temperature": 0.3}, LMI, 0.3),
        ({"temperature": 0.3}, TGI, 0.3),
        ({"temperature": 1.0}, LMI, 1.0),
        ({"temperature": 1.0}, TGI, 0.0),
        ({"temperature": 0}, LMI, 0.0),
        ({"temperature": 0.3, "do_sample": False}, LMI, 0.0),
        ({"temperature": 0.3, "do_sample": False}, TGI, 0.3),
        ({"top_p": 0.9}, LMI, None),
        ({"top_k": 5}, TGI, None),
        ({"top_p": 1.0, "top_k": -1}, LMI, 0.0),
    ],
)
def test_what_makes_it_sample(parameters: dict[str, Any], asked: RequestOptions, temperature: float | None) -> None:
    assert generation(parameters, asked).sampling.temperature == temperature


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("max_new_tokens", 7, "max_tokens", 7),
        ("min_tokens", 2, "min_tokens", 2),
        ("top_p", 0.5, "top_p", 0.5),
        ("top_k", 5, "top_k", 5),
        ("min_p", 0.1, "min_p", 0.1),
        ("repetition_penalty", 1.1, "repetition_penalty", 1.1),
        ("frequency_penalty", 0.5, "frequency_penalty", 0.5),
        ("presence_penalty", -0.5, "presence_penalty", -0.5),
        ("seed", 3, "seed", 3),
        ("stop", ["x", "y"], "stop", ("x", "y")),
        ("stop", "x", "stop", ("x",)),
        ("stop_sequences", ["y"], "stop", ("y",)),
        ("stop_token_ids", [3], "stop_token_ids", (3,)),
        ("include_stop_str_in_output", True, "include_stop_str_in_output", True),
        ("ignore_eos_token", True, "ignore_eos", True),
        ("skip_special_tokens", False, "skip_special_tokens", False),
        ("spaces_between_special_tokens", False, "spaces_between_special_tokens", False),
        ("details", True, "logprobs", 0),
        ("decoder_input_details", True, "prompt_logprobs", 0),
        ("grammar", {"type": "regex", "value": "a+"}, "grammar", Grammar("regex", "a+", "parameters.grammar")),
    ],
)
def test_each_parameter_reaches_the_engine(name: str, value: object, field: str, expected: object) -> None:
    assert getattr(generation({name: value}).sampling, field) == expected


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"details": True}, "details"),
        ({"details": True, "top_n_tokens": 2}, "top_n_tokens"),
        ({"decoder_input_details": True}, "decoder_input_details"),
        ({"best_of": 2, "do_sample": True}, "best_of"),
    ],
)
def test_an_error_about_log_probabilities_names_what_asks_for_them(parameters: dict[str, Any], name: str) -> None:
    call: Any = dispatch.parse({"inputs": "abc", "parameters": parameters}, ENGINE, LMI)
    names = getattr(call, "generations", [getattr(call, "generation", None)])[0].names
    prompt = "parameters.decoder_input_details"
    assert names == {"logprobs": f"parameters.{name}", "prompt_logprobs": prompt, "echo": prompt}


@pytest.mark.parametrize("name", [*UNSERVED])
def test_what_is_not_served_is_rejected_unless_its_value_has_no_effect(name: str) -> None:
    assert refused({name: "something"}).param == f"parameters.{name}"
    for value in UNSERVED[name]:
        assert generation({name: value})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"inputs": {"a": 1}}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ""}, "inputs"),
        ({"inputs": ["a", ""]}, "inputs[1]"),
        ({"inputs": ["a", 5]}, "inputs"),
        ({"inputs": ["a", {"role": "user", "content": "b"}]}, "inputs"),
        ({"inputs": ["a"] * (MAX_TEXTS + 1)}, "inputs"),
        ({"inputs": ["a"] * (ENGINE.max_sequences + 1)}, "inputs"),
        ({"parameters": {"best_of": ENGINE.max_sequences + 1, "do_sample": True}}, "parameters.best_of"),
        ({"inputs": [{"role": "user"}]}, "inputs[0].content"),
        ({"inputs": [{"role": "tool", "content": "a", "tool_call_id": "t"}]}, "inputs[0].tool_call_id"),
        ({"inputs": [{"role": "assistant", "content": "a", "reasoning": "b"}]}, "inputs[0].reasoning"),
        ({"inputs": ["a"], "stream": True}, "inputs"),
        ({"parameters": []}, "parameters"),
        ({"parameter": {}}, "parameter"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_body_that_cannot_be_used_is_blamed_on_its_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as caught:
        dispatch.parse({"inputs": "a", **body}, ENGINE)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"max_new_token": 5},
        {"max_tokens": 5},
        {"temperature": "x"},
        {"temperature": -1},
        {"top_n_tokens": 21},
        {"best_of": 0},
        {"best_of": 100, "do_sample": True},
        {"best_of": 2},
        {"best_of": 2, "temperature": 0},
        {"best_of": 2, "do_sample": True, "temperature": 0},
        {"best_of": 2, "top_k": 1},
        {"best_of": 2, "do_sample": True, "seed": 1},
        {"truncate": 0},
        {"stop": [""]},
        {"min_tokens": 31},
        {"logit_bias": {"1": 2}},
        {"output_formatter": "jsonlines_chat"},
        {"grammar": "a+"},
        {"grammar": {"type": "regex"}},
        {"grammar": {"type": "regex", "value": {}}},
        {"grammar": {"type": "json", "value": 5}},
        {"grammar": {"type": "json_schema", "value": {}}},
        {"grammar": {"type": "regex", "value": "a" * 70_000}},
    ],
)
def test_every_error_below_parameters_says_so(parameters: dict[str, Any]) -> None:
    name = next(iter(parameters))
    assert refused(parameters).param == f"parameters.{name}"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "grammar",
    [
        {"type": "json", "value": SCHEMA},
        {"type": "json_object", "value": json.dumps(SCHEMA)},
        {"type": "json_schema", "value": {"name": "x", "schema": SCHEMA}},
    ],
)
def test_the_three_spellings_of_a_json_grammar(grammar: dict[str, Any]) -> None:
    found = generation({"grammar": grammar}).sampling.grammar
    assert found is not None
    assert found.kind == "json"
    assert json.loads(found.text) == SCHEMA


def test_the_default_length_is_each_ones_own() -> None:
    assert generation({}).sampling.max_tokens == 30
    assert generation({}, inputs="a" * (CONTEXT - 6)).sampling.max_tokens == 5
    assert generation({}, TGI).sampling.max_tokens is None


def test_the_text_ends_with_the_stop_string_for_tgi_and_before_it_for_lmi() -> None:
    assert generation({"stop": ["x"]}, TGI).sampling.include_stop_str_in_output
    assert not generation({"stop": ["x"]}, LMI).sampling.include_stop_str_in_output


def test_truncate_keeps_the_end_of_the_prompt() -> None:
    assert generation({"truncate": 2}).prompt == [98, 99]
    assert generation({"truncate": 50}).prompt == [BOS, 97, 98, 99]


def test_messages_are_rendered_by_the_models_template() -> None:
    engine: Any = ParsingEngine(STRICT_TEMPLATE)
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    found = generation({}, engine=engine, inputs=messages)
    assert text_of(found.prompt) == "[user] Hello\n[assistant] Hi\n[assistant] "
    assert refused({}, engine=engine, inputs=[messages[1]]).param == "inputs"
    assert refused({"return_full_text": True}, inputs=messages).param == "parameters.return_full_text"
    assert generation({}, TGI, inputs=messages), "TGI's default for a text does not count here"


@pytest.mark.parametrize(
    ("inputs", "asked", "param"),
    [
        ([{"role": "user", "content": [IMAGE]}], LMI, "inputs[0].content[0]"),
        ("![](data:image/png;base64,AAAA)What is this?", TGI, "inputs"),
        (["a", "![](https://a.org/x.png)What is this?"], TGI, "inputs[1]"),
    ],
)
def test_a_client_with_an_image_learns_to_send_a_chat(inputs: Any, asked: RequestOptions, param: str) -> None:
    error = refused({}, asked, ParsingEngine(multimodal=True), inputs=inputs)
    assert error.param == param
    assert "as 'messages'" in error.message
    assert isinstance(inputs, list) or generation({}, asked, inputs=inputs), "a model of text has it as text"


def test_a_list_of_texts_is_several_generations() -> None:
    call: Any = dispatch.parse({"inputs": ["ab", "c"], "parameters": {"max_new_tokens": 3}}, ENGINE)
    assert [text_of(each.prompt) for each in call.generations] == ["ab", "c"]
    assert len({each.request_id for each in call.generations}) == 2
    assert not call.stream
    assert len(dispatch.parse({"inputs": ["ab"]}, ENGINE).generations) == 1  # type: ignore[attr-defined]


def test_a_conversation_may_have_more_messages_than_a_list_has_texts() -> None:
    assert dispatch.parse({"inputs": [{"role": "user", "content": "a"}] * (MAX_TEXTS + 1)}, ENGINE)


def test_best_of_is_several_generations_of_one_prompt() -> None:
    body = {"inputs": "ab", "parameters": {"best_of": 3, "do_sample": True}}
    call: Any = dispatch.parse(body, ENGINE)
    assert [text_of(each.prompt) for each in call.generations] == ["ab"] * 3
    assert all(each.sampling.logprobs == 0 for each in call.generations)
    for more in ({"stream": True}, {"inputs": ["a", "b"]}):
        assert refused(body["parameters"], **more).param == "parameters.best_of"  # type: ignore[arg-type]


def test_log_probabilities_are_asked_for_where_they_are_shown() -> None:
    assert generation({}).sampling.logprobs is None
    assert generation({}).scores is None
    assert generation({"details": True, "top_n_tokens": 4}).sampling.logprobs == 4
    streamed = generation({}, stream=True)
    assert streamed.sampling.logprobs == 0
    assert streamed.scores is not None


def test_a_device_without_log_probabilities_refuses_what_needs_them_and_answers_the_rest() -> None:
    assert generation({"details": True}, engine=ON_DEVICE).sampling.logprobs is None
    assert generation({}, engine=ON_DEVICE, stream=True).sampling.logprobs is None
    assert refused({"best_of": 2, "do_sample": True}, engine=ON_DEVICE).param == "parameters.best_of"
    assert refused({"top_n_tokens": 2}, engine=ON_DEVICE).param == "parameters.top_n_tokens"
    for limits in (ON_DEVICE.limits.sampling, LORA_ON_CPU):
        engine: Any = ParsingEngine(limits=limits)
        assert refused({"decoder_input_details": True}, engine=engine).param == "parameters.decoder_input_details"


def test_the_prompts_details_do_not_go_with_a_stream() -> None:
    assert refused({"decoder_input_details": True}, stream=True).param == "parameters.decoder_input_details"


@pytest.mark.parametrize(
    ("given", "models"),
    [
        ("alias", ["alias", "alias"]),
        (["alias", None], ["alias", None]),
        (["", "sample"], [None, "sample"]),
        ("", [None, None]),
    ],
)
def test_adapters_are_one_for_all_texts_or_one_for_each(given: object, models: list[str | None]) -> None:
    call: Any = dispatch.parse({"inputs": ["a", "b"], "adapters": given}, ENGINE, LMI)
    assert [generation.model for generation in call.generations] == models
    assert generation({}, adapters=["alias"]).model == "alias"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"adapters": ["alias"]}, "adapters"),
        ({"adapters": ["alias", "nobody"]}, "adapters"),
        ({"adapters": ["alias", "alias"], "model": "alias"}, "adapters"),
        ({"adapters": "alias", "parameters": {"adapter_id": "sample"}}, "adapters"),
        ({"model": "sample", "parameters": {"adapter_id": "alias"}}, "parameters.adapter_id"),
        ({"parameters": {"adapter_id": "nobody"}}, "parameters.adapter_id"),
        ({"adapters": 7}, "adapters"),
        ({"adapters": [7, 8]}, "adapters[0]"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as caught:
        dispatch.parse({"inputs": ["a", "b"], **body}, ENGINE, LMI)
    assert caught.value.param == param
