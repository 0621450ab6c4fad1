"""Documents of settings: their formats, their locations, and what is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.config.loading.file_reader import LIMIT
from handler.config.problems import SettingErrors
from tests.handler.config.reading import one_refusal, read

YAML = """
model: org/name
max-num-seqs: 4            # vLLM's spelling
tensor_parallel_size: 8
served_model_name: [a, b]
additional_config:
  override_neuron_config: {enable_bucketing: false, on_device_sampling_config: null}
  max_prompt_length: 100
engine_args:
  seed: 7
neuron_env: {NEURON_RT_LOG_LEVEL: INFO}
"""
TOML = """
model = "org/name"
max-num-seqs = 4
tensor_parallel_size = 8
served_model_name = ["a", "b"]
additional_config = { override_neuron_config = { enable_bucketing = false }, max_prompt_length = 100 }
engine_args = { seed = 7 }
[neuron_env]
NEURON_RT_LOG_LEVEL = "INFO"
"""
JSON = json.dumps(yaml.safe_load(YAML))
TEXTS = {"yaml": YAML, "toml": TOML, "json": JSON}


def check(config: EndpointConfig, *, null: bool = True) -> None:
    assert (config.model, config.max_num_seqs, config.tensor_parallel_size) == ("org/name", 4, 8)
    assert config.served_model_name == ("a", "b")
    assert config.neuron_config == {"enable_bucketing": False, **({"on_device_sampling_config": None} if null else {})}
    assert config.engine_args == {"additional_config": {"max_prompt_length": 100}, "seed": 7}
    assert config.neuron_env == {"NEURON_RT_LOG_LEVEL": "INFO"}


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("ending", [True, False], ids=["by its name", "by its content"])
def test_each_format_from_a_file(form: str, ending: bool, tmp_path: Path) -> None:
    file = tmp_path / (f"endpoint.{form}" if ending else "endpoint")
    file.write_text(TEXTS[form])
    config = load({"ENDPOINT_CONFIG": str(file)})
    check(config, null=form != "toml")
    assert config.source("max_num_seqs").name == "max-num-seqs"
    assert config.source("max_num_seqs").where == str(file)


@pytest.mark.parametrize("form", TEXTS)
def test_each_format_from_s3(form: str, put_s3: Callable[[str, bytes], str]) -> None:
    uri = put_s3(f"configs/endpoint.{form}", TEXTS[form].encode())
    config = load({"ENDPOINT_CONFIG": uri})
    check(config, null=form != "toml")
    assert config.source("max_num_seqs").where == uri


def test_the_files_of_a_model_on_s3(put_s3: Callable[[str, bytes], str]) -> None:
    put_s3("models/m/endpoint.yaml", b"max_num_seqs: 4\ncompiled_artifacts: s3://settings/models/m/neff/")
    put_s3("models/m/serving.properties", b"option.n_positions=4096\n")
    put_s3("models/m/empty/endpoint.yaml", b"")
    put_s3("models/m/neff/neuron_config.json", b'{"neuron_config": {"tp_degree": 32}}')
    config = load({"HF_MODEL_ID": "s3://settings/models/m/"})
    assert (config.max_num_seqs, config.max_model_len, config.tensor_parallel_size) == (4, 4096, 32)
    assert config.source("tensor_parallel_size").where == "s3://settings/models/m/neff/neuron_config.json"
    assert load({"HF_MODEL_ID": "s3://settings/models/m/empty"}).max_num_seqs is None


@pytest.mark.parametrize("uri", ["s3://settings/none.yaml", "s3://no-such-bucket/a.yaml", "s3://settings", "s3://"])
def test_a_document_on_s3_that_is_not_there(uri: str, put_s3: Callable[[str, bytes], str]) -> None:
    with pytest.raises(SettingErrors) as caught:
        load({"ENDPOINT_CONFIG": uri})
    assert caught.value.setting == "ENDPOINT_CONFIG"
    assert uri in caught.value.message


def test_a_document_that_is_not_there_or_too_large(tmp_path: Path, put_s3: Callable[[str, bytes], str]) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (LIMIT + 1))
    uri = put_s3("large.yaml", b"#" * (LIMIT + 1))
    for location, words in {
        str(tmp_path / "none.yaml"): "no such file",
        str(tmp_path): "cannot be read",
        str(large): "larger",
        uri: "larger",
        "a" * 5000: "cannot be read",
    }.items():
        with pytest.raises(SettingErrors) as caught:
            load({"ENDPOINT_CONFIG": location})
        assert words in caught.value.message


BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "alias"),
        ("a: {x: 1}\n<<: {y: 1}\n", "merge"),
        ("max_num_seqs: 1\nmax_num_seqs: 2\n", "twice"),
        ("model: !!python/object/apply:os.system [ls]\n", "line 1"),
        ("model: [1, 2", "line"),
        ("- a\n- b\n", "not an object"),
        ("just words", "not an object"),
        ("max_num_seqs: 2020-01-01\n", "date"),
        ("neuron_config: {a: .inf}\n", "infinite"),
        (f"neuron_config: {{a: 0x{'f' * 5000}}}\n", "64 bits"),
        ("neuron_config: {1: 2}\n", "quotes"),
        ('model: "a\\0b"\n', "NUL"),
        (f"neuron_config: {'[' * 100}{']' * 100}\n", "nested"),
        (f"neuron_config: {'[' * 2000}{']' * 2000}\n", "read"),
        ("model: a\nserved_model_name: {{ name }}\n", "list or an object (line 2, column 21)"),
        ("? [a, b]\n: 1\n", "list or an object"),
        ("max_num_seqs: !!int ''\n", "read"),
        ("enforce_eager: !!bool x\n", "read"),
        ("max_num_seqs: !!timestamp x\n", "read"),
        ("model: a\nrevision: 0123456\n", "not all read alike (line 2, column 11)"),
        ("context_encoding_buckets: [0128, 0256]\n", "not all read alike"),
        ("context_encoding_buckets: [128, 0200]\n", "without leading zeros"),
        ("max_model_len: 4:00\n", "colons"),
        ("max_model_len: 1_000\n", "underscores"),
        ("deadline: 1:30.5\n", "not all read alike"),
        ("engine_args: {seed: 0b11}\n", "not all read alike"),
    ],
)
def test_what_a_document_may_not_do(text: str, words: str) -> None:
    error = one_refusal({"ENDPOINT_CONFIG": "/d.yaml"}, {"/d.yaml": text})
    assert "/d.yaml" in error.message
    assert words in error.message


def test_the_numbers_that_a_document_may_have() -> None:
    text = "max_model_len: 0x400\ndeadline: 1.5\nengine_args: {seed: 0, swap_space: 1.0e+1}\nrevision: '0123456'\n"
    config = read({"ENDPOINT_CONFIG": "/d.yaml"}, {"/d.yaml": text})
    assert (config.max_model_len, config.deadline, config.engine_args["seed"]) == (1024, 1.5, 0)
    assert config.engine_args["swap_space"] == 10
    assert config.engine_args["revision"] == "0123456"


def test_a_document_that_is_not_utf8() -> None:
    with pytest.raises(SettingErrors, match="UTF-8"):
        load({"ENDPOINT_CONFIG": "/d.yaml"}, fetch=lambda location: b"model: \xff" if location == "/d.yaml" else None)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("max_num_seq", "max_num_seqs"),
        ("tensor-parallel-degree", "tensor_parallel_size"),
        ("neuron_cfg", "neuron_config"),
    ],
)
def test_a_slip_in_a_key(key: str, meant: str) -> None:
    error = one_refusal({"ENDPOINT_CONFIG": "/d.json"}, {"/d.json": json.dumps({key: 1})})
    assert error.setting == f"{key} in /d.json"
    assert f"Did you mean {meant}?" in error.fix


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n"])
def test_an_empty_document_sets_nothing(text: str) -> None:
    assert read({"ENDPOINT_CONFIG": "/d.yaml"}, {"/d.yaml": text or " "}) == read({})


PROPERTIES = r"""
# the NeuronX example of LMI's own guide
engine=Python
option.entryPoint=djl_python.transformers_neuronx
option.rolling_batch=auto
option.model_id = NousResearch/Llama-2-7b-chat-hf
option.tensor_parallel_degree: 4
option.max_rolling_batch_size=8
option.n_positions   4096
option.context_length_estimate=256,512, \
    1024
option.model_loading_timeout=1600
! another comment
job_queue_size=100
option.override_neuron_config={"async_mode": true}
option.revision=caf\u00e9
"""


def test_lmis_properties() -> None:
    config = read({}, {"/opt/ml/model/serving.properties": PROPERTIES})
    assert (config.model, config.tensor_parallel_size) == ("NousResearch/Llama-2-7b-chat-hf", 4)
    assert (config.max_num_seqs, config.max_model_len, config.max_concurrent) == (8, 4096, 100)
    assert config.context_encoding_buckets == (256, 512, 1024)
    assert config.neuron_config == {"async_mode": True}
    assert config.engine_args == {"revision": "café"}
    assert list(config.unused) == ["option.model_loading_timeout"]
    assert str(config.source("max_num_seqs")) == "option.max_rolling_batch_size in /opt/ml/model/serving.properties"


ASYNCHRONOUS = """
engine=Python
option.async_mode=True
option.rolling_batch=disable
option.entryPoint=djl_python.lmi_vllm.vllm_async_service
option.max_rolling_batch_size=64
"""


def test_the_properties_of_lmis_asynchronous_mode_leave_batching_to_the_engine() -> None:
    config = read({}, {"/opt/ml/model/serving.properties": ASYNCHRONOUS})
    assert (config.max_num_seqs, config.async_mode, list(config.unused)) == (64, None, ["option.async_mode"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("option.unroll=4", "option.unroll"),
        ("option.n_position=4", "option.n_positions"),
        ("option.port=80", "SAGEMAKER_BIND_TO_PORT"),
        ("engine=OnnxRuntime", "engine"),
        ("job_queue_sise=1", "job_queue_size"),
        ("minWorkers=4", "one engine"),
        ("n_positions=4096", "option.n_positions"),
        ("=4", "no key"),
        ("option.dtype=bf16\noption.dtype=fp16", "twice"),
    ],
)
def test_lmis_properties_that_cannot_be(line: str, words: str) -> None:
    error = one_refusal({}, {"/opt/ml/model/serving.properties": line})
    assert words in error.message
    assert "/opt/ml/model/serving.properties" in error.message


NXDI = {
    "neuron_config": {
        "tp_degree": 32,
        "batch_size": 1,
        "max_batch_size": 4,
        "seq_len": 2048,
        "max_context_length": 1024,
        "torch_dtype": "bfloat16",
        "logical_nc_config": 2,
        "ctx_batch_size": 1,
        "enable_bucketing": True,
        "context_encoding_buckets": [512, 1024],
        "token_generation_buckets": None,
        "async_mode": False,
        "quantized": True,
        "quantization_dtype": "f8e4m3",
        "speculation_length": 0,
        "is_block_kv_layout": True,
        "pa_block_size": 32,
        "on_device_sampling_config": {"global_topk": 64, "dynamic": True},
        "something_new": [1],
    },
    "hidden_size": 64,
}


def test_what_nxdi_compiled_for() -> None:
    config = read({"NEURON_COMPILED_ARTIFACTS": "/neff/"}, {"/neff/neuron_config.json": json.dumps(NXDI)})
    assert (config.tensor_parallel_size, config.max_num_seqs, config.max_model_len) == (32, 4, 2048)
    assert (config.max_context_length, config.dtype, config.logical_nc_config) == (1024, "bfloat16", 2)
    assert (config.context_encoding_buckets, config.token_generation_buckets) == ((512, 1024), None)
    assert (config.quantization, config.num_speculative_tokens, config.block_size) == ("fp8", None, 32)
    assert (config.on_device_sampling, config.global_topk, config.async_mode) == (True, 64, False)


@pytest.mark.parametrize("text", ["{", "[1]", '{"tp_degree": "many"}', '{"torch_dtype": "int4"}'])
def test_a_broken_neuron_config_is_an_error_with_its_path(text: str) -> None:
    error = one_refusal({"NEURON_COMPILED_ARTIFACTS": "/neff"}, {"/neff/neuron_config.json": text})
    assert "/neff/neuron_config.json" in error.setting
