"""What the device would ignore is rejected with an error that names it; on the CPU all of it counts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from handler.engine.generation.generation import Generation, Grammar, Sampling
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.generation.sampling_check import check, check_document, ignored_defaults
from handler.engine.warmup import ROUNDS, prompt_length, rounds, within
from handler.errors import InvalidField, UnsupportedField
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.sampling_limits import LORA_ON_CPU, ON_CPU, PLUGIN_ON_CPU, SamplingLimits, sampling_limits


def limits(**sampling: Json) -> SamplingLimits:
    override: dict[str, Json] = {"on_device_sampling_config": {"dynamic": True, **sampling}}
    return sampling_limits(EnginePlan("nxdi-0.16", {"additional_config": {"override_neuron_config": override}}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 1.1),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
        ("min_tokens", 3),
        ("logprobs", 0),
        ("grammar", Grammar("regex", "a+", "grammar")),
    ],
)
def test_what_the_device_ignores_is_refused_with_the_way_to_have_it(name: str, value: object) -> None:
    with pytest.raises(UnsupportedField, match="ENDPOINT_ON_DEVICE_SAMPLING=false") as caught:
        check(Sampling(**{name: value}), limits())  # type: ignore[arg-type]
    assert caught.value.param == name
    check(Sampling(**{name: value}), ON_CPU)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7, top_p=0.9, top_k=50),
        Sampling(top_k=-1),
        Sampling(repetition_penalty=1.0, min_p=0.0, stop=("END",), ignore_eos=True),
    ],
)
def test_what_it_honours_or_what_asks_for_nothing_passes(sampling: Sampling) -> None:
    check(sampling, limits())


def test_a_top_k_that_would_be_clamped_is_refused() -> None:
    check(Sampling(top_k=64), limits(global_topk=64))
    with pytest.raises(InvalidField, match="64") as caught:
        check(Sampling(top_k=65), limits(global_topk=64))
    assert caught.value.param == "top_k"


def test_a_static_sampler_honours_nothing() -> None:
    with pytest.raises(UnsupportedField):
        check(Sampling(temperature=0.5), limits(dynamic=False))
    check(Sampling(), limits(dynamic=False))


def test_a_static_greedy_sampler_may_be_asked_for_what_it_does() -> None:
    """The 405B tutorial compiles one. Clients send temperature 0 and top_k 1 for greedy answers."""
    greedy = limits(dynamic=False)
    check(Sampling(temperature=0.0, top_k=1), greedy)
    check_document({"temperature": 0, "top_k": 1}, greedy)
    for body in ({"temperature": 0.7}, {"top_k": 50}, {"top_p": 0.9}):
        with pytest.raises(UnsupportedField, match="dynamic") as caught:
            check_document(body, greedy)
        assert caught.value.param == next(iter(body))
    drawn = limits(dynamic=False, do_sample=True, top_k=50)
    with pytest.raises(UnsupportedField):
        check(Sampling(temperature=0.0), drawn)


def test_the_models_own_defaults_that_the_device_ignores_are_named() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "min_p": 0.0}
    assert ignored_defaults(defaults, limits()) == {"repetition_penalty": 1.05}
    assert ignored_defaults(defaults, ON_CPU) == {}


def test_the_prompts_log_probabilities_are_refused_where_the_runner_reports_none() -> None:
    for there in (limits(), LORA_ON_CPU):
        with pytest.raises(UnsupportedField) as caught:
            check(Sampling(prompt_logprobs=0), there)
        assert caught.value.param == "prompt_logprobs"
    check(Sampling(prompt_logprobs=0, logprobs=5), ON_CPU)
    check(Sampling(logprobs=5), LORA_ON_CPU)


@pytest.mark.parametrize(("name", "value"), [("min_p", 0.1), ("seed", 0), ("logit_bias", {"5": 1})])
def test_what_the_plugin_ignores_everywhere_is_refused_without_a_setting(name: str, value: object) -> None:
    for there in (limits(), PLUGIN_ON_CPU):
        with pytest.raises(UnsupportedField, match="this line never has it") as caught:
            _check_either(name, value, there)
        assert caught.value.param == name
    _check_either(name, value, LORA_ON_CPU)


def _check_either(name: str, value: object, there: SamplingLimits) -> None:
    """A bias is a field that only vLLM's classes serve."""
    if name == "logit_bias":
        check_document({name: value}, there)
    else:
        check(Sampling(**{name: value}), there)  # type: ignore[arg-type]


def test_what_the_plugin_has_on_the_cpu_passes() -> None:
    check(Sampling(min_tokens=3, repetition_penalty=1.1, logprobs=2, min_p=0.0), PLUGIN_ON_CPU)
    check_document({"logit_bias": {}, "bad_words": ["x"], "allowed_token_ids": [5], "seed": None}, PLUGIN_ON_CPU)
    assert ignored_defaults({"min_p": 0.1, "repetition_penalty": 1.05}, PLUGIN_ON_CPU) == {"min_p": 0.1}


def native(device: bool, **args: object) -> SamplingLimits:
    """The limits of a plan for the native plugin."""
    keys: dict[str, Json] = {"on_device_sampling_config": {"all_greedy": False} if device else None}
    scheduling: Json = args.pop("async_scheduling", device)  # type: ignore[assignment]
    keys |= args  # type: ignore[arg-type]
    plan = EnginePlan("native-0.24", {"additional_config": {"neuron_config": keys}, "async_scheduling": scheduling})
    return sampling_limits(plan)


NATIVE_DEVICE, NATIVE_CPU = native(True), native(False)
GRAMMAR = Grammar("regex", "a+", "grammar")


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("logprobs", 1, "ENDPOINT_LOGPROBS=true"),
        ("grammar", GRAMMAR, "ENDPOINT_STRUCTURED_OUTPUTS=true"),
        ("seed", 1, "ENDPOINT_ON_DEVICE_SAMPLING=false"),
        ("min_tokens", 2, "ENDPOINT_ON_DEVICE_SAMPLING=false"),
        ("frequency_penalty", 0.5, "ENDPOINT_ON_DEVICE_SAMPLING=false"),
        ("min_p", 0.1, "this line never has it"),
    ],
)
def test_the_native_device_names_the_setting_of_each_parameter(name: str, value: object, setting: str) -> None:
    with pytest.raises(UnsupportedField, match=setting) as caught:
        check(Sampling(**{name: value}), NATIVE_DEVICE)  # type: ignore[arg-type]
    assert caught.value.param == name


def test_native_sampling_on_the_cpu_has_all_but_min_p_and_biases() -> None:
    check(Sampling(seed=1, min_tokens=2, presence_penalty=0.5, repetition_penalty=1.1, logprobs=1), NATIVE_CPU)
    check_document({"bad_words": ["a"], "allowed_token_ids": [1], "logprobs": True, "top_logprobs": 2}, NATIVE_CPU)
    for wrong in (Sampling(min_p=0.1), Sampling(grammar=GRAMMAR), Sampling(prompt_logprobs=1)):
        with pytest.raises(UnsupportedField):
            check(wrong, NATIVE_CPU)
    for name, value in {"logit_bias": {"1": 1}, "response_format": {"type": "json_object"}}.items():
        with pytest.raises(UnsupportedField) as caught:
            check_document({name: value}, NATIVE_CPU)
        assert caught.value.param == name


def test_the_settings_of_the_native_line_turn_their_parameters_on() -> None:
    scored = native(True, async_scheduling=False)
    check(Sampling(logprobs=1), scored)
    check_document({"logprobs": True, "use_beam_search": True}, scored)
    structured = native(True, async_scheduling=False, enable_structured_outputs=True)
    check(Sampling(grammar=GRAMMAR), structured)
    check_document({"response_format": {"type": "json_object"}, "tools": [{}], "tool_choice": "required"}, structured)
    with pytest.raises(UnsupportedField, match="ENDPOINT_STRUCTURED_OUTPUTS=true"):
        check_document({"tools": [{}], "tool_choice": "required"}, scored)


SAMPLERS: tuple[Json, ...] = (
    {"dynamic": False, "do_sample": False, "top_k": 1},
    {"do_sample": True, "top_k": 50},
    {"dynamic": True, "global_topk": 8},
    {"dynamic": True},
    None,
)


NATIVE_SAMPLERS: tuple[Json, ...] = ({}, {"all_greedy": True}, {"max_top_k": 4}, None)


def plans(seed: int = 36, count: int = 200) -> Iterator[RequestLimits]:
    """Limits of plans of each line with a sampler of its own and lengths down to one token of output."""
    chosen = random.Random(seed)
    for _ in range(count):
        line = chosen.choice(("cpu", "nxdi-0.16", "native-0.29", "fork-0.9.1"))
        native = chosen.choice(NATIVE_SAMPLERS)
        key, sampler = (
            ("neuron_config", native) if line[:3] == "nat" else ("override_neuron_config", chosen.choice(SAMPLERS))
        )
        plan = EnginePlan(
            line,
            {
                "additional_config": {key: {"on_device_sampling_config": sampler}},
                key: {"on_device_sampling_config": sampler},
            },
        )
        output = chosen.choice((None, 1, 3))
        length = chosen.choice((2, 3, 5, 8, 4096))
        yield RequestLimits(length, 100, chosen.choice((None, 1, 3)), output, None, sampling_limits(plan))


def test_the_warm_up_keeps_the_limits_of_any_plan() -> None:
    for limits in plans():
        for sampling in {sampling for samplings in ROUNDS for sampling in samplings}:
            prompt = [1] * prompt_length(limits)
            kept = within(sampling, limits)
            assert 1 <= limits.check(Generation("warm-up", prompt, kept, stream=False)) <= (kept.max_tokens or 0)
            if limits.sampling.supported is None and limits.max_model_len == 4096 and limits.max_output is None:
                assert kept == sampling


def test_one_batch_of_every_sampling_warms_an_engine_that_compiles_nothing() -> None:
    (batch,) = rounds(EnginePlan("cpu", {}, {"TORCHDYNAMO_DISABLE": "1"}))
    kinds = {replace(sampling, max_tokens=None) for samplings in ROUNDS for sampling in samplings}
    assert {replace(sampling, max_tokens=None) for sampling in batch} == kinds
    for line, env in (("cpu", {}), ("native-0.29", {"TORCHDYNAMO_DISABLE": "1"})):
        assert rounds(EnginePlan(line, {}, env)) == ROUNDS


def test_an_engine_that_is_always_greedy_takes_a_body_that_asks_for_it() -> None:
    """Also on the native lines."""
    plan = EnginePlan(
        "native-0.29", {"additional_config": {"neuron_config": {"on_device_sampling_config": {"all_greedy": True}}}}
    )
    check(Sampling(temperature=0.0, top_k=1), sampling_limits(plan))
    with pytest.raises(UnsupportedField, match="all_greedy"):
        check(Sampling(temperature=0.7), sampling_limits(plan))
