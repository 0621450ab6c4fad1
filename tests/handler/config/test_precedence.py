"""Which of several sources wins, and the error if two equally strong ones differ."""

from __future__ import annotations

import pytest

from handler.config.loading.config_loader import load
from handler.config.value_source import Origin, Overridden, ValueSource
from tests.handler.config.reading import one_refusal, read, refused

MODEL = "/models/m"
FILES = {
    "/doc.yaml": "max_num_seqs: 3\nblock_size: 3\nmax_loras: 3\nmax_lora_rank: 3\ncompiled_artifacts: /neff\n",
    f"{MODEL}/endpoint.yaml": "block_size: 4\nmax_loras: 4\n",
    f"{MODEL}/serving.properties": "option.max_model_len=4\n",
    "/neff/neuron_config.json": '{"neuron_config": {"batch_size": 5, "seq_len": 5, "tp_degree": 5}}',
}
ENVIRON = {"ENDPOINT_CONFIG": "/doc.yaml", "ENDPOINT_MODEL": MODEL, "ENDPOINT_MAX_NUM_SEQS": "2"}


def test_the_stronger_source_wins_and_each_value_knows_its_own() -> None:
    config = read(ENVIRON, FILES)
    assert (config.max_num_seqs, config.block_size, config.max_loras, config.max_lora_rank) == (2, 3, 3, 3)
    assert (config.max_model_len, config.tensor_parallel_size) == (4, 5)
    assert config.source("max_num_seqs") == ValueSource(Origin.ENVIRONMENT, "ENDPOINT_MAX_NUM_SEQS")
    assert config.source("block_size") == ValueSource(Origin.DOCUMENT, "block_size", "/doc.yaml")
    lmi = f"{MODEL}/serving.properties"
    assert config.source("max_model_len") == ValueSource(Origin.MODEL_FILE, "option.max_model_len", lmi)
    assert config.source("tensor_parallel_size") == ValueSource(
        Origin.ARTIFACTS, "tp_degree", "/neff/neuron_config.json"
    )
    assert config.source("async_mode").origin is Origin.DEFAULT


def test_what_was_overridden_is_kept_strongest_first() -> None:
    overridden = read(ENVIRON, FILES).overridden
    assert overridden["max_num_seqs"] == (
        Overridden(3, ValueSource(Origin.DOCUMENT, "max_num_seqs", "/doc.yaml")),
        Overridden(5, ValueSource(Origin.ARTIFACTS, "batch_size", "/neff/neuron_config.json")),
    )
    assert set(overridden) == {"max_num_seqs", "block_size", "max_loras", "max_model_len"}


def test_a_model_on_the_command_line_beats_the_environment() -> None:
    config = load({"HF_MODEL_ID": "org/other"}, fetch=lambda location: None, model="org/name")
    assert config.model == "org/name"
    assert config.source("model").origin is Origin.ARGUMENT


def test_a_document_can_leave_a_field_to_the_line_again() -> None:
    files = {"/d.json": '{"max_num_seqs": null}', f"{MODEL}/endpoint.yaml": "max_num_seqs: 4"}
    config = read({"ENDPOINT_CONFIG": "/d.json", "ENDPOINT_MODEL": MODEL}, files)
    assert config.max_num_seqs is None
    assert config.source("max_num_seqs").origin is Origin.DOCUMENT


def test_a_documents_model_decides_which_files_are_read() -> None:
    files = {"/d.yaml": f"model: {MODEL}", f"{MODEL}/endpoint.yaml": "max_num_seqs: 4"}
    assert read({"ENDPOINT_CONFIG": "/d.yaml"}, files).max_num_seqs == 4


def test_beside_a_hub_id_the_mounted_directory_is_read() -> None:
    files = {"/base/model/serving.properties": "option.max_rolling_batch_size=4"}
    assert read({"HF_MODEL_ID": "org/name", "SAGEMAKER_BASE_DIR": "/base"}, files).max_num_seqs == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"ENDPOINT_MODEL": "org/one"}, {"HF_MODEL_ID": "org/two"}),
        ({"HF_MODEL_ID": "org/one"}, {"MODEL_ID": "org/two"}),
        ({"ENDPOINT_MAX_NUM_SEQS": "4"}, {"SM_VLLM_MAX_NUM_SEQS": "8"}),
        ({"OPTION_MAX_ROLLING_BATCH_SIZE": "4"}, {"SM_ON_BATCH_SIZE": "8"}),
        ({"ENDPOINT_PORT": "1"}, {"SAGEMAKER_BIND_TO_PORT": "2"}),
        ({"NEURON_CONTEXT_LENGTH_BUCKETS": "128"}, {"ENDPOINT_CONTEXT_ENCODING_BUCKETS": "[256]"}),
        ({"NEURON_ON_DEVICE_SAMPLING_DISABLED": "1"}, {"ENDPOINT_ON_DEVICE_SAMPLING": "true"}),
        ({"SM_VLLM_SEED": "1"}, {"ENDPOINT_ENGINE_ARGS": '{"seed": 2}'}),
        ({"ENDPOINT_ASYNC_MODE": "true"}, {"ENDPOINT_NEURON_CONFIG": '{"async_mode": false}'}),
        ({"SM_VLLM_TENSOR_PARALLEL_SIZE": "8"}, {"SM_VLLM_OVERRIDE_NEURON_CONFIG": '{"tp_degree": 32}'}),
        ({"OPTION_COMPILED_GRAPH_PATH": "/a"}, {"NEURON_COMPILE_CACHE_URL": "/b"}),
    ],
)
def test_one_setting_in_two_ways_with_two_values_is_an_error_that_names_both(
    one: dict[str, str], other: dict[str, str]
) -> None:
    message = one_refusal({**one, **other}).message
    assert next(iter(one)) in message
    assert next(iter(other)) in message
    assert message == one_refusal({**other, **one}).message, "whatever the order of the environment"


def test_one_setting_in_two_ways_with_one_value_is_none() -> None:
    config = read({"SM_VLLM_MAX_NUM_SEQS": "4", "OPTION_MAX_ROLLING_BATCH_SIZE": " 4 ", "SM_ON_BATCH_SIZE": "4"})
    assert config.max_num_seqs == 4
    assert config.overridden == {}


def test_the_two_files_in_the_model_directory_are_equals() -> None:
    files = {f"{MODEL}/endpoint.yaml": "dtype: bfloat16", f"{MODEL}/serving.properties": "option.dtype=fp16"}
    message = one_refusal({"ENDPOINT_MODEL": MODEL}, files).message
    assert "endpoint.yaml" in message
    assert "serving.properties" in message


def test_a_raw_key_of_a_weaker_source_does_not_beat_a_plain_setting() -> None:
    config = read(
        {"ENDPOINT_ASYNC_MODE": "false", "ENDPOINT_CONFIG": '{"neuron_config": {"async_mode": true, "x": 1}}'}
    )
    assert (config.async_mode, config.neuron_config) == (False, {"x": 1})


def test_a_raw_key_of_another_name_does_not_either() -> None:
    package = "neuron_config: {seq_len: 2048, batch_size: 4, pa_block_size: 16, x: 1}"
    environ = {"SM_VLLM_MAX_MODEL_LEN": "1024", "SM_VLLM_MAX_NUM_SEQS": "2", "ENDPOINT_MODEL": MODEL}
    config = read(environ, {f"{MODEL}/endpoint.yaml": package})
    assert (config.max_model_len, config.max_num_seqs) == (1024, 2)
    assert config.neuron_config == {"pa_block_size": 16, "x": 1}
    assert [value.value for name in ("max_model_len", "max_num_seqs") for value in config.overridden[name]] == [2048, 4]
    both = {"SM_VLLM_MAX_NUM_SEQS": "8", "SM_VLLM_OVERRIDE_NEURON_CONFIG": '{"batch_size": 1}'}
    assert read(both).neuron_config == {"batch_size": 1}, "equally strong: a plan may need both (chunked prefill)"


@pytest.mark.parametrize(("value", "kept"), [("false", {}), ("true", {"on_device_sampling_config": {"top_k": 5}})])
def test_what_a_stronger_source_turns_off_no_raw_key_turns_on(value: str, kept: dict[str, object]) -> None:
    environ = {"ENDPOINT_ON_DEVICE_SAMPLING": value, "ENDPOINT_CONFIG": "/d.yaml"}
    config = read(environ, {"/d.yaml": "neuron_config: {on_device_sampling_config: {top_k: 5}}"})
    assert (config.on_device_sampling, config.neuron_config) == (value == "true", kept)


def test_a_stronger_global_topk_leaves_the_rest_of_the_sampling_object() -> None:
    document = "neuron_config: {on_device_sampling_config: {global_topk: 256, do_sample: true}}"
    config = read({"ENDPOINT_GLOBAL_TOPK": "64", "ENDPOINT_CONFIG": "/d.yaml"}, {"/d.yaml": document})
    assert config.global_topk == 64
    assert config.neuron_config == {"on_device_sampling_config": {"do_sample": True}}
    (weaker,) = config.overridden["global_topk"]
    assert (weaker.value, weaker.source.name) == (256, "neuron_config.on_device_sampling_config.global_topk")


def test_a_raw_key_of_a_stronger_source_beats_a_plain_setting() -> None:
    config = read({"ENDPOINT_NEURON_CONFIG": '{"async_mode": true}', "ENDPOINT_CONFIG": '{"async_mode": false}'})
    assert (config.async_mode, config.neuron_config) == (None, {"async_mode": True})


def test_a_token_is_in_no_message() -> None:
    token = "hf_AbCdEfGh1234"
    environ = {
        "HF_TOKEN": token,
        "HUGGING_FACE_HUB_TOKEN": "hf_another999",
        "ENDPOINT_MODEL": token,
        "HF_MODEL_ID": "org/name",
        "ENDPOINT_PORT": token,
        "ENDPOINT_CONFIG": f'{{"hf_token": ["{token}"], "{token}": "{token}", "neuron_env": "{token}"}}',
    }
    errors = refused(environ)
    assert len(errors) >= 5
    for error in errors:
        assert token not in f"{error} {error.message} {error.setting} {error.problem} {error.fix} {error.args}"
        assert "hf_another999" not in error.message
