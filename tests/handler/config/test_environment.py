from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handler.config import environment
from handler.config.endpoint import EndpointConfig
from handler.errors import SettingError

MIB = 1024 * 1024
NUMBERS = [
    # variable, attribute, given, read, too low, too high
    ("SAGEMAKER_BIND_TO_PORT", "port", "9000", 9000, "-1", "65536"),
    ("ENDPOINT_MAX_CONCURRENT", "max_concurrent", "7", 7, "0", "4097"),
    ("ENDPOINT_MAX_BODY_MB", "max_body", "3", 3 * MIB, "0", "1025"),
    ("ENDPOINT_DRAIN", "drain", "1.5", 1.5, "-0.1", "3601"),
    ("ENDPOINT_STALL", "stall", "2.5", 2.5, "0.9", "3601"),
    ("ENDPOINT_ENGINE_RESTARTS", "engine_restarts", "0", 0, "-1", "1001"),
]


def refused(environ: Mapping[str, str]) -> SettingError:
    with pytest.raises(SettingError) as caught:
        environment.read(environ)
    return caught.value


def arguments(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Each engine argument's setting, and what vLLM's command line gets for it."""
    return {argument.setting: argument.argv() for argument in environment.read(environ).engine_arguments}


def test_an_empty_environment_gives_sagemakers_own_defaults() -> None:
    config = environment.read({})
    assert config.model == "/opt/ml/model"
    assert config.port == 8080
    assert config.max_body == 25 * MIB
    assert config.engine_arguments == ()
    assert config.log_requests is False
    assert config.drain < 30, "SageMaker kills 30 s after SIGTERM"


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        environment.read({}).port = 1  # type: ignore[misc]


def test_other_peoples_variables_are_left_alone() -> None:
    others = {"PATH": "/bin", "VLLM_LOGGING_LEVEL": "INFO", "SAGEMAKER_REGION": "eu-west-1", "MY_ENDPOINT_X": "1"}
    assert environment.read(others) == environment.read({})


@pytest.mark.parametrize(("name", "attribute", "text", "value", "low", "high"), NUMBERS)
def test_each_number_is_read_and_bounded(
    name: str, attribute: str, text: str, value: float, low: str, high: str
) -> None:
    assert getattr(environment.read({name: f" {text} "}), attribute) == value
    assert environment.read({name: ""}) == environment.read({})
    for bad in (low, high, "x", "", "1,5", "nan", "9" * 5000):
        if bad:
            error = refused({name: bad})
            assert error.setting == name
            assert error.message.startswith(f"{name}: ")
            assert "from" in error.mend, "it says what would do"


@pytest.mark.parametrize("name", ["ENDPOINT_MAX_CONCURRENT", "ENDPOINT_ENGINE_RESTARTS", "SAGEMAKER_BIND_TO_PORT"])
def test_a_whole_number_takes_no_fraction(name: str) -> None:
    assert "whole number" in refused({name: "1.5"}).message


def test_the_paths() -> None:
    config = environment.read({"ENDPOINT_SCRATCH": "/data/scratch", "SAGEMAKER_BASE_DIR": "/elsewhere"})
    assert config.scratch == Path("/data/scratch")
    assert (config.model, config.model_setting) == ("/elsewhere/model", "SAGEMAKER_BASE_DIR")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("", False)]
)
def test_the_flag(text: str, value: bool) -> None:
    assert environment.read({"ENDPOINT_LOG_REQUESTS": text}).log_requests is value


def test_a_flag_that_is_neither() -> None:
    error = refused({"ENDPOINT_LOG_REQUESTS": "yes please"})
    assert error.setting == "ENDPOINT_LOG_REQUESTS"
    assert "true or false" in error.mend


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ENDPOINT_MODLE", "ENDPOINT_MODEL"),
        ("ENDPOINT_MAX_CONCURENT", "ENDPOINT_MAX_CONCURRENT"),
        ("ENDPOINT_RESTARTS", "ENDPOINT_ENGINE_RESTARTS"),
    ],
)
def test_a_slip_in_our_own_names_is_an_error_that_names_the_right_one(name: str, meant: str) -> None:
    error = refused({name: "x"})
    assert error.setting == name
    assert f"Did you mean {meant}?" in error.message


def test_an_unknown_name_that_is_near_none_lists_them_all() -> None:
    message = refused({"ENDPOINT_" + "Z" * 40: "x"}).message
    assert all(known in message for known in environment.KNOWN)


@pytest.mark.parametrize("name", ["ENDPOINT_MODEL", "SM_VLLM_MODEL", "HF_MODEL_ID"])
def test_each_name_of_the_model(name: str) -> None:
    config = environment.read({name: "s3://bucket/model"})
    assert (config.model, config.model_setting) == ("s3://bucket/model", name)
    assert config.engine_arguments == ()


def test_the_same_model_given_twice() -> None:
    config = environment.read({"HF_MODEL_ID": "org/model", "SM_VLLM_MODEL": "org/model", "ENDPOINT_MODEL": ""})
    assert (config.model, config.model_setting) == ("org/model", "SM_VLLM_MODEL")


def test_two_models_are_refused_naming_both() -> None:
    message = refused({"ENDPOINT_MODEL": "org/one", "HF_MODEL_ID": "org/two"}).message
    for part in ("ENDPOINT_MODEL", "HF_MODEL_ID", "org/one", "org/two"):
        assert part in message


@pytest.mark.parametrize(
    ("name", "text", "argv"),
    [
        ("SM_VLLM_MAX_NUM_SEQS", "64", ("--max-num-seqs", "64")),
        ("SM_VLLM_ENFORCE_EAGER", "true", ("--enforce-eager",)),
        ("SM_VLLM_ENFORCE_EAGER", " True ", ("--enforce-eager",)),
        ("SM_VLLM_ENABLE_PREFIX_CACHING", "false", ("--no-enable-prefix-caching",)),
        ("SM_VLLM_SERVED_MODEL_NAME", '["a", "b c"]', ("--served-model-name", "a", "b c")),
        ("SM_VLLM_CUDA_GRAPH_SIZES", "[1, 2, 4]", ("--cuda-graph-sizes", "1", "2", "4")),
        ("SM_VLLM_ADDITIONAL_CONFIG", '{"a": {"b": 1}}', ("--additional-config", '{"a": {"b": 1}}')),
        ("SM_VLLM_LORA_MODULES", '[{"name": "x"}]', ("--lora-modules", '{"name": "x"}')),
        ("SM_VLLM_SEED", "-1", ("--seed", "-1")),
    ],
)
def test_an_engine_argument_as_vllm_spells_it(name: str, text: str, argv: tuple[str, ...]) -> None:
    assert arguments({name: text}) == {name: argv}


def test_engine_arguments_do_not_depend_on_the_order_of_the_environment() -> None:
    one = {"SM_VLLM_SEED": "1", "SM_VLLM_BLOCK_SIZE": "16"}
    other = dict(reversed(one.items()))
    assert environment.read(one).engine_arguments == environment.read(other).engine_arguments


@pytest.mark.parametrize("name", ["SM_VLLM_HOST", "SM_VLLM_PORT", "SM_VLLM_SSL_KEYFILE", "SM_VLLM_API_SERVER_COUNT"])
def test_what_would_open_a_second_server_is_refused(name: str) -> None:
    error = refused({name: "8000"})
    assert error.setting == name
    assert ("SAGEMAKER_BIND_TO_PORT" in error.mend) == (name == "SM_VLLM_PORT")


def test_a_broken_json_list() -> None:
    error = refused({"SM_VLLM_SERVED_MODEL_NAME": "[a, b"})
    assert error.setting == "SM_VLLM_SERVED_MODEL_NAME"
    assert "JSON" in error.message


def test_a_json_list_nested_too_deep() -> None:
    assert refused({"SM_VLLM_SERVED_MODEL_NAME": "[" * 5000}).setting == "SM_VLLM_SERVED_MODEL_NAME"


def test_an_empty_json_list_is_no_flag() -> None:
    assert refused({"SM_VLLM_SERVED_MODEL_NAME": "[]"}).setting == "SM_VLLM_SERVED_MODEL_NAME"


NAMES = st.one_of(
    st.sampled_from([*environment.KNOWN, "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_BASE_DIR", "SM_VLLM_MODEL"]),
    st.text(max_size=8).map(lambda tail: f"SM_VLLM_{tail}"),
    st.text(max_size=8).map(lambda tail: f"ENDPOINT_{tail}"),
    st.text(max_size=12),
)
VALUES = st.one_of(st.text(max_size=30), st.integers().map(str), st.floats().map(str), st.text().map("[{}".format))


@settings(max_examples=300, deadline=None)
@example({"SM_VLLM_": "x"})
@example({"ENDPOINT_STALL": "inf"})
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_any_environment_gives_a_config_or_a_setting_error(environ: dict[str, str]) -> None:
    result: EndpointConfig | SettingError
    try:
        result = environment.read(environ)
    except SettingError as error:
        result = error
    if isinstance(result, SettingError):
        assert result.setting in environ
        assert result.message.startswith(f"{result.setting}: ")
        assert result.mend
    else:
        assert 0 <= result.port <= 65535
        assert result.max_concurrent >= 1
