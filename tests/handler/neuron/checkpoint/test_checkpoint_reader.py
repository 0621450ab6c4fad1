from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handler.errors import SettingError
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from tests.handler.neuron.published_models import LLAMA_405B, json_files, safetensors

CONFIG = b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}'
SHARD = safetensors({"a": ("BF16", [10, 10], 2)})


def write(directory: Path, files: dict[str, bytes]) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return str(directory)


def test_405b_needs_its_two_json_files_only(tmp_path: Path) -> None:
    """None of its 191 shards is here."""
    facts = read_facts(write(tmp_path, json_files(LLAMA_405B)))
    assert facts is not None
    assert (facts.layers, facts.weight_bytes, facts.local) == (126, 811_706_777_600, True)


def test_a_single_file_is_known_by_its_header(tmp_path: Path) -> None:
    facts = read_facts(write(tmp_path, {"config.json": CONFIG, "model.safetensors": SHARD}))
    assert facts is not None
    assert (facts.parameters, facts.weight_bytes, dict(facts.dtypes)) == (100, 200, {"BF16": 200})


def test_shards_without_an_index_are_found(tmp_path: Path) -> None:
    facts = read_facts(write(tmp_path, {"config.json": CONFIG, "a.safetensors": SHARD, "b.safetensors": SHARD}))
    assert facts is not None
    assert facts.weight_bytes == 400


def test_an_index_without_a_total_leads_to_the_headers(tmp_path: Path) -> None:
    index = {"metadata": {}, "weight_map": {"x": "1.safetensors", "y": "2.safetensors", "z": "1.safetensors"}}
    files = {"model.safetensors.index.json": json.dumps(index).encode(), "1.safetensors": SHARD, "2.safetensors": SHARD}
    facts = read_facts(write(tmp_path, {"config.json": CONFIG, **files}))
    assert facts is not None
    assert (facts.parameters, facts.weight_bytes) == (200, 400)


def test_a_total_that_is_a_float_counts(tmp_path: Path) -> None:
    index = b'{"metadata": {"total_size": 2048.0, "total_parameters": 1024}, "weight_map": {}}'
    facts = read_facts(write(tmp_path, {"config.json": CONFIG, "model.safetensors.index.json": index}))
    assert facts is not None
    assert (facts.parameters, facts.weight_bytes) == (1024, 2048)


def test_a_checkpoint_without_safetensors_has_a_shape_but_no_size(tmp_path: Path) -> None:
    facts = read_facts(write(tmp_path, {"config.json": CONFIG, "pytorch_model.bin": b"..."}))
    assert facts is not None
    assert (facts.layers, facts.weight_bytes, facts.parameters) == (2, None, None)


@pytest.mark.parametrize("name", ["../../etc/passwd", "sub/model.safetensors", ".hidden", "", "\ud800"])
def test_an_index_with_a_file_outside_is_rejected(tmp_path: Path, name: str) -> None:
    index = json.dumps({"weight_map": {"x": name}}).encode()
    with pytest.raises(SettingError, match=r"index\.json names the file"):
        read_facts(write(tmp_path, {"config.json": CONFIG, "model.safetensors.index.json": index}))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_broken_json_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(SettingError, match=rf"ENDPOINT_MODEL: .*/{name} is not a JSON object"):
        read_facts(write(tmp_path, {"config.json": CONFIG, name: content}))


def test_json_of_an_absurd_size_is_not_read(tmp_path: Path) -> None:
    model = write(tmp_path, {"config.json": CONFIG})
    os.truncate(tmp_path / "config.json", 65 * 1024 * 1024)  # sparse: takes no room
    with pytest.raises(SettingError, match="too many for a JSON file"):
        read_facts(model)


def test_a_truncated_shard_is_an_error_with_its_name(tmp_path: Path) -> None:
    problem = "is not a safetensors file: it has a header that ends after"
    with pytest.raises(SettingError, match=rf"/model\.safetensors: {problem}"):
        read_facts(write(tmp_path, {"config.json": CONFIG, "model.safetensors": SHARD[:30]}))


@pytest.mark.parametrize("model", ["/nowhere/at/all", "./nowhere", "~/nowhere-at-all"])
def test_a_directory_that_is_not_there_is_an_error(model: str) -> None:
    with pytest.raises(SettingError, match="there is no directory"):
        read_facts(model)


def test_a_directory_without_config_json_is_an_error_and_mistrals_format_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"has no config\.json"):
        read_facts(write(tmp_path / "empty", {}))
    assert read_facts(write(tmp_path / "mistral", {"params.json": b"{}"})) is None


def test_a_hub_id_is_looked_up_in_the_local_cache_only(tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    assert read_facts("org/model", environ=environ) is None
    write(tmp_path / "models--org--model" / "refs", {"main": b"abc123"})
    assert read_facts("org/model", environ=environ) is None
    write(tmp_path / "models--org--model" / "snapshots" / "abc123", {"config.json": CONFIG})
    facts = read_facts("org/model", environ=environ)
    assert facts is not None
    assert (facts.where, facts.local, facts.layers) == ("org/model", False, 2)


@pytest.mark.parametrize("variable", ["HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_is_where_the_hub_library_keeps_it(tmp_path: Path, variable: str) -> None:
    hub = tmp_path / "hub" if variable == "HF_HOME" else tmp_path / "huggingface" / "hub"
    write(hub / "models--org--model" / "refs", {"main": b"abc123\n"})
    write(hub / "models--org--model" / "snapshots" / "abc123", {"config.json": CONFIG})
    assert read_facts("org/model", environ={variable: str(tmp_path)}) is not None


def test_a_revision_cannot_lead_outside_of_the_cache(tmp_path: Path) -> None:
    write(tmp_path / "models--org--model" / "refs", {"main": b"../../.."})
    write(tmp_path, {"config.json": CONFIG})
    assert read_facts("org/model", environ={"HF_HUB_CACHE": str(tmp_path)}) is None


@pytest.mark.parametrize("model", ["x" * 5000, "~nobody-of-this-name/model"])
def test_an_impossible_name_is_an_error(model: str) -> None:
    with pytest.raises(SettingError, match=r"ENDPOINT_MODEL: .* cannot be a directory or a hub id"):
        read_facts(model)


def test_reading_a_directory_and_estimating_pull_in_neither_boto3_nor_an_engine(tmp_path: Path) -> None:
    model = write(tmp_path, json_files(LLAMA_405B))
    script = f"""
import json, sys
from handler.config.endpoint_config import EndpointConfig
from handler.neuron.checkpoint import checkpoint_reader
from handler.neuron.hardware import current_machine, instance_catalogue
from handler.neuron.memory import memory_estimate, memory_findings
facts = checkpoint_reader.read_facts({model!r})
found = memory_estimate.estimate(facts, EndpointConfig(), instance_catalogue.find("ml.trn2.48xlarge"))
memory_findings.memory_findings(found, facts)
print(json.dumps(sorted(sys.modules)))
"""
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert not {"boto3", "botocore", "vllm", "torch", "transformers"} & set(json.loads(done.stdout))
