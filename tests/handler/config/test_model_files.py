"""Files beside a model describe it, and set nothing else: by `config explain`'s loader, `check`, and `POST /models`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from handler.config.dialects.vllm_names import SPECULATIVE_FLAGS
from handler.config.endpoint_config import MODEL_ARGUMENTS, MODEL_VARIABLES, EndpointConfig
from handler.config.field_metadata import METADATA, FieldMetadata, ModelFile
from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.config.problems import SettingErrors
from handler.config.vllm_argument_table import known
from handler.errors import SettingError
from tests.model_packaging.command import run
from tests.small_model import write_small_model

# What whoever made a model might write, by file. Each line alone is an error that names the file and the key.
REJECTED = {
    "endpoint.yaml": """trust_remote_code: true
custom_code: true
requirements: download
hf_token: hf_AAAABBBBCCCC
port: 9090
safe_port_range: 1-2
batch_store: /outside
artifact_store: s3://elsewhere/store
artifact_signing_key: file:///outside
compiled_artifacts: /outside/neff
log_prompts: true
log_format: text
scratch: /outside
max_body: 1000000000
trust_request_chat_template: true
trust_request_mm_kwargs: true
tool_parser_plugin: evil.py
chat_template: /outside/secret
chat_template: ../secret
chat_template: ~/secret
model: /outside/model
model: org/name
speculative_model: org/draft
lora_modules: {a: /outside}
quantized_checkpoints_path: /opt/ml/model/../outside
engine_args: {worker_cls: evil.Worker}
engine_args: {download_dir: /opt/ml/model/x}
engine_args: {hf_overrides: {trust_remote_code: true}}
engine_args: {hf_overrides: {text_config: {_attn_implementation: someone/kernel}}}
engine_args: {hf_overrides: {auto_map: {AutoModel: evil.Model}}}
engine_args: {additional_config: {max_prompt_length: 5, profiler: {output: here}}}
engine_args: {speculative_config: {method: ngram_gpu, model: org/evil}}
engine_args: {generation_config: /outside}
engine_args: {generation_config: org/evil}
engine_args: {structured_outputs_config: {reasoning_parser_plugin: evil.py}}
engine_args: {mm_processor_kwargs: {trust_remote_code: true}}
allowed_local_media_path: /
logits_processors: [evil.Processor]
kv_transfer_config: {kv_connector_module_path: evil}
tokenizer: org/evil
neuron_config: {lora_ckpt_json: /outside/adapters.json}
neuron_config: {tensor_capture_config: {path: out}}
text_neuron_config: {quantized_checkpoints_path: /outside}
neuron_env: {LD_PRELOAD: /opt/ml/model/evil.so}
neuron_env: {PYTHONPATH: /opt/ml/model}
neuron_env: {NEURON_RT_LOG_LOCATION: file}
neuron_env: {NEURON_CC_FLAGS: --cache_dir=/outside}
neuron_env: {NEURON_CC_FLAGS: --logfile x}
neuron_env: {MASTER_ADDR: evil}""",
    "serving.properties": """option.trust_remote_code=true
option.model_id=org/name
option.chat_template=/outside/secret
option.worker_cls=evil.Worker
option.compiled_graph_path=/outside/cache
option.hf_overrides={"trust_remote_code": true}
option.speculative_draft_model=org/draft""",
}
TAKEN = """max_model_len: 512
dtype: bfloat16
max_num_seqs: 4
chat_template: chat.jinja
chat_template: "{{ messages }}"
compiled_artifacts: /opt/ml/model/compiled
artifact_store: file:///opt/ml/model/artifacts
lora_modules: {a: /opt/ml/model/adapters/a}
engine_args: {hf_overrides: {rope_theta: 500000.0, architectures: [LlamaForCausalLM]}}
engine_args: {generation_config: vllm, seed: 7}
engine_args: {hf_overrides: {trust_remote_code: false}}
neuron_config: {modules_to_not_convert: ["lm_head", ".*_proj"], enable_bucketing: true}
neuron_env: {NEURON_CC_FLAGS: -O2 --model-type=transformer}
served_model_name: org/name""".splitlines()
LINES = [(file, line) for file, text in REJECTED.items() for line in text.splitlines()]


@pytest.mark.parametrize(("file", "line"), LINES)
def test_a_key_that_is_the_owners_is_an_error_with_file_and_key(tmp_path: Path, file: str, line: str) -> None:
    model = write_small_model(tmp_path / "model")
    (model / file).write_text(line)
    key = line.partition("=")[0].partition(":")[0]
    with pytest.raises(SettingErrors) as caught:
        load({"SAGEMAKER_BASE_DIR": str(tmp_path)})
    for words in (f"{model}/{file}", key):
        assert words in caught.value.message
    result = run("check", "--json", model)
    assert result.exit_code == 1
    assert f"{model}/{file}" in result.stdout
    assert "hf_AAAA" not in caught.value.message + result.stdout


@pytest.mark.parametrize("line", TAKEN)
def test_what_describes_the_model_is_taken(tmp_path: Path, line: str) -> None:
    model = write_small_model(tmp_path / "model")
    (model / "endpoint.yaml").write_text(line)
    load({"SAGEMAKER_BASE_DIR": str(tmp_path)})


def test_artifacts_that_come_with_a_model_name_no_place_either(tmp_path: Path) -> None:
    compiled = write_small_model(tmp_path / "model") / "compiled"
    compiled.mkdir()
    saved = {"neuron_config": {"quantized": True, "quantized_checkpoints_path": "s3://elsewhere/x", "tp_degree": 2}}
    (compiled / "neuron_config.json").write_text(json.dumps(saved))
    (tmp_path / "model" / "endpoint.yaml").write_text(f"compiled_artifacts: {compiled}")
    config = load({"SAGEMAKER_BASE_DIR": str(tmp_path)})
    assert (config.tensor_parallel_size, config.quantized_checkpoints_path) == (2, None)
    config = load({"SAGEMAKER_BASE_DIR": str(tmp_path / "no"), "NEURON_COMPILED_ARTIFACTS": str(compiled)})
    assert config.quantized_checkpoints_path == "s3://elsewhere/x", "the owner's own"


def test_the_owner_sets_all_of_it_elsewhere(tmp_path: Path) -> None:
    """The document that ENDPOINT_CONFIG names, and variables, are not files of the model."""
    (tmp_path / "mine.yaml").write_text("trust_remote_code: true\nmax_body: 1000\nchat_template: /outside/x")
    assert load({"ENDPOINT_CONFIG": str(tmp_path / "mine.yaml")}).trust_remote_code


def test_a_directory_of_settings_alone_names_a_model_of_the_hub_or_of_s3(tmp_path: Path) -> None:
    """LMI's usual form: there is no model beside the file."""
    (tmp_path / "model").mkdir()
    for location, taken in {"org/name": True, "s3://bucket/x": True, "/outside": False, "../x": False}.items():
        (tmp_path / "model" / "serving.properties").write_text(f"option.model_id={location}")
        if taken:
            assert load({"SAGEMAKER_BASE_DIR": str(tmp_path)}).model == location
            continue
        with pytest.raises(SettingErrors, match="outside of the model's directory"):
            load({"SAGEMAKER_BASE_DIR": str(tmp_path)})


def test_every_field_and_every_argument_is_declared_and_held_to_it(tmp_path: Path) -> None:
    """A field without a declaration cannot be made. Any value of the owner's fields, and any argument that is not
    listed, is refused."""
    with pytest.raises(TypeError, match="model_file"):
        FieldMetadata(text="a new one")  # type: ignore[call-arg]
    declared: dict[str, Any] = {field.name: field.metadata[METADATA] for field in dataclasses.fields(EndpointConfig)}
    model = write_small_model(tmp_path / "model")
    values = {"bool": True, "int": 2, "float": 2.0, "tuple[str, ...]": ["a"], "Mapping[str, str]": {"a": "/outside"}}
    for name, field in fields().items():
        value = field.metadata.choices[0] if field.metadata.choices else values.get(field.kind, "/outside")
        refused = declared[name].model_file is not ModelFile.DATA
        if refused or field.kind in ("bool", "int", "float"):
            assert _refuses(model, {name: value}) == refused, name
    read_as_fields = {*fields(), *SPECULATIVE_FLAGS, "lora_modules"}
    unlisted = sorted(set(known()) - set(MODEL_ARGUMENTS.split()) - read_as_fields)
    assert {"worker_cls", "download_dir", "load_format", "model_loader_extra_config"} <= set(unlisted)
    for name in unlisted:
        kind = known()[name].kind
        value = (
            known()[name].choices[0] if known()[name].choices else {"bool": True, "int": 2, "float": 2.0}.get(kind, "x")
        )
        assert _refuses(model, {"engine_args": {name: [value] if kind == "list" else value}}), name
    assert not {"LD_PRELOAD", "PYTHONPATH", "NEURON_RT_LOG_LOCATION"} & set(MODEL_VARIABLES.split())


def _refuses(model: Path, document: dict[str, Any]) -> bool:
    (model / "endpoint.yaml").write_text(json.dumps(document))
    try:
        load({"SAGEMAKER_BASE_DIR": str(model.parent)})
    except SettingError as error:
        return str(model / "endpoint.yaml") in error.message
    return False
