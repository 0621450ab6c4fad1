"""Packages: put together, written, read again, and refused where they hold what they must not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from handler.config.loading.config_loader import load
from handler.storage.archive import unpack
from tests.model_packaging.command import run, told

ROOT = Path(__file__).parents[2]
HUB_TOKEN = "hf_" + "aB3dE5gH7j" * 3 + "kLmN"
PACK_TWICE = "from model_packaging.cli import main; main()"


def test_a_folder_becomes_a_package(model: Path, tmp_path: Path) -> None:
    (model / "pytorch_model.bin").write_bytes(b"the weights again")
    (model / ".git").mkdir()
    (model / ".git" / "config").write_text("x")
    (model / "chat_template.jinja").write_text("{{ x }}")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text("def model_fn(): ...\n")
    (tmp_path / "settings.toml").write_text("max_num_seqs = 4\n")
    made = told(
        "pack", model, "--to", tmp_path / "out", "--code", tmp_path / "code", "--config", tmp_path / "settings.toml"
    )
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert names == [
        "chat_template.jinja",
        "code/inference.py",
        "config.json",
        "endpoint-package.json",
        "endpoint.yaml",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert set(made["excluded"]) == {"pytorch_model.bin", ".git/config"}
    assert load({}, model=str(tmp_path / "out")).max_num_seqs == 4
    assert run("verify", tmp_path / "out").exit_code == 0


def test_an_edited_package_leaves_the_model_as_it_was(model: Path, tmp_path: Path) -> None:
    before = (model / "config.json").read_text()
    told("pack", model, "--to", tmp_path / "out")
    (tmp_path / "out" / "config.json").open("a").write(" ")
    assert (model / "config.json").read_text() == before


def test_weights_without_safetensors_are_taken(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert told("pack", model, "--to", tmp_path / "out")["excluded"] == {}


def test_weights_in_mistrals_own_format_are_taken_if_there_are_no_others(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "model.safetensors", model / "consolidated.safetensors")
    assert set(told("pack", model, "--to", tmp_path / "both")["excluded"]) == {"consolidated.safetensors"}
    (model / "model.safetensors").unlink()
    (model / "config.json").rename(model / "params.json")
    assert told("pack", model, "--to", tmp_path / "out")["excluded"] == {}
    assert (tmp_path / "out" / "consolidated.safetensors").is_file()


def test_a_draft_may_have_weights_in_another_format(model: Path, tmp_path: Path) -> None:
    for name in ("draft", "onnx"):
        (model / name).mkdir()
        (model / name / "pytorch_model.bin").write_bytes(b"weights")
    assert set(told("pack", model, "--to", tmp_path / "out")["excluded"]) == {"onnx/pytorch_model.bin"}
    assert (tmp_path / "out" / "draft" / "pytorch_model.bin").is_file()


def test_a_folder_has_no_revision(model: Path, tmp_path: Path) -> None:
    refused = run("pack", model, "--to", tmp_path / "out", "--revision", "main")
    assert "--revision" in refused.stderr
    assert refused.exit_code == 2


def test_the_dense_layers_of_an_embedding_model_are_taken(model: Path, tmp_path: Path) -> None:
    (model / "2_Dense").mkdir()
    (model / "2_Dense" / "pytorch_model.bin").write_bytes(b"weights")
    assert told("pack", model, "--to", tmp_path / "out")["excluded"] == {}
    assert (tmp_path / "out" / "2_Dense" / "pytorch_model.bin").is_file()


def test_what_custom_code_loads_is_taken(model: Path, tmp_path: Path) -> None:
    loaded = ("inference.py", "optimizer.py", "head.safetensors", "weights.pt", "__pycache__/inference.pyc")
    for place in (model / "code", tmp_path / "code"):
        for name in loaded:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"pass\n")
    told("pack", model, "--to", tmp_path / "own")
    shutil.rmtree(model / "code")
    told("pack", model, "--code", tmp_path / "code", "--to", tmp_path / "option")
    for out in ("own", "option"):
        names = {path.name for path in (tmp_path / out / "code").iterdir()}
        assert names == {"inference.py", "optimizer.py", "head.safetensors", "weights.pt"}


def test_a_dry_run_makes_nothing(model: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert "Would pack 3 files" in run("pack", model, "--to", tmp_path / "out", "--dry-run").stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_compiled_directory_is_found_by_the_endpoint(model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    (compiled / "neuron_config.json").write_text("{}")
    (compiled / "model.pt").write_bytes(b"graph")
    (model / "endpoint.yaml").write_text("max_num_seqs: 2\n")
    told("pack", model, "--artifacts", compiled, "--to", tmp_path / "out")
    settings = load({}, model=str(tmp_path / "out"), fetch=_as_mounted(tmp_path / "out"))
    assert settings.compiled_artifacts == "/opt/ml/model/compiled"
    assert settings.max_num_seqs == 2
    assert told("inspect", tmp_path / "out")["graphs"] == ["compiled directory"]


def test_a_stores_entries_are_found_in_the_package(model: Path, tmp_path: Path) -> None:
    store = ArtifactStore.open(f"file://{tmp_path}/my%20store")
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "model.pt").write_bytes(b"graph")
    store.publish(tmp_path / "graph", CompileInputs("ab" * 32, "graph", {"tensor_parallel_size": 2}))
    told("pack", model, "--artifacts", store.uri, "--to", tmp_path / "out")
    settings = load({}, model=str(tmp_path / "out"))
    assert settings.artifact_store == "file:///opt/ml/model/artifacts"
    assert settings.on_miss == "fail"
    assert ArtifactStore.open(f"file://{tmp_path}/out/artifacts").find("ab" * 32, "graph") is not None
    (tmp_path / "out" / "config.json").write_text("[" * 100_000)
    assert told("inspect", tmp_path / "out")["graphs"] == [f"graph {'ab' * 32}"]


def test_an_archive_has_the_same_bytes_wherever_it_is_packed(model: Path, tmp_path: Path) -> None:
    told("pack", model, "--to", tmp_path / "a.tar.gz")
    for path in model.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    environ = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PACK_TWICE, "pack", str(model), "--to", str(tmp_path / "b.tar.gz")]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_an_archive_is_plain_files_with_the_folders_content(model: Path, tmp_path: Path) -> None:
    (model / "sub").mkdir()
    (model / "sub" / ("n" * 150)).write_bytes(b"a long name")
    (model / "link.json").symlink_to("config.json")
    told("pack", model, "--to", tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert all(member.isreg() for member in tar)
    with (tmp_path / "a.tar.gz").open("rb") as stream:
        unpack(stream, tmp_path / "unpacked", "a.tar.gz")
    assert (tmp_path / "unpacked" / "link.json").read_bytes() == (model / "config.json").read_bytes()
    assert (tmp_path / "unpacked" / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert run("verify", tmp_path / "unpacked").exit_code == 0
    assert "unpack it first" in run("verify", tmp_path / "a.tar.gz").stderr


def test_a_link_out_of_the_folder_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (model / "notes.txt").symlink_to(tmp_path / "secret")
    result = run("pack", model, "--to", tmp_path / "out")
    assert result.exit_code == 1
    assert "leads out of the directory" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", f"login with {HUB_TOKEN}!".encode()),
        ("model.safetensors", b"\0" * (4 * 1024 * 1024 - 10) + HUB_TOKEN.encode() + b"\0" * 100),
        ("endpoint.yaml", b"hf_token: not-even-a-real-one\n"),
        ("code.py", b"key = 'AKIAABCDEFGHIJKLMNOP'\n"),
        ("id.txt", b"-----BEGIN RSA PRIVATE KEY-----\n"),
        ("other.txt", b"the shell's own value: 0123456789abcdef"),
    ],
)
def test_a_token_never_ends_in_a_package(model: Path, tmp_path: Path, name: str, content: bytes) -> None:
    (model / name).write_bytes(content)
    for to in ("out", "out.tar.gz"):
        result = run("pack", model, "--to", tmp_path / to, HF_TOKEN="0123456789abcdef")
        assert result.exit_code == 1, result.output
        assert name in result.stderr
        assert not any(secret in result.output for secret in (HUB_TOKEN, "AKIAABCD", "0123456789abcdef", "not-even"))
        assert not (tmp_path / to).exists()


def test_what_only_looks_like_a_token_is_packed(model: Path, tmp_path: Path) -> None:
    (model / "modeling.py").write_text("hf_pretrained_configuration_of_a_model_with_long_name = 1  # AKIA ASIA\n")
    (model / "endpoint.yaml").write_text("max_num_seqs: 2\n# hf_token is set in the environment\n")
    assert run("pack", model, "--to", tmp_path / "out").exit_code == 0


def test_verify_names_each_damaged_file(model: Path, tmp_path: Path) -> None:
    package = tmp_path / "whole"
    told("pack", model, "--to", package)
    (package / "tokenizer.json").unlink()
    (package / "extra.txt").write_text("x")
    weights = bytearray((package / "model.safetensors").read_bytes())
    weights[77] ^= 1
    (package / "model.safetensors").unlink()
    (package / "model.safetensors").write_bytes(weights)
    result = run("verify", package, "--json")
    assert result.exit_code == 1
    faults = {fault["path"]: fault["problem"] for fault in json.loads(result.stdout)["faults"]}
    assert faults == {
        "tokenizer.json": "is missing",
        "extra.txt": "is not part of the package, but would be loaded with it",
        "model.safetensors": "has other content",
    }


@pytest.mark.parametrize("path", ["../up", "/abs", "a/../b", "x\\y"])
def test_a_manifest_cannot_name_paths_elsewhere(model: Path, tmp_path: Path, path: str) -> None:
    told("pack", model, "--to", tmp_path / "out")
    manifest = tmp_path / "out" / "endpoint-package.json"
    document = json.loads(manifest.read_text())
    document["files"][0]["path"] = path
    manifest.write_text(json.dumps(document))
    assert run("verify", tmp_path / "out").exit_code == 1


@pytest.mark.parametrize("size", [-1, 2**63, 10**400, 1.5, True, "2", None])
def test_a_manifest_cannot_name_sizes_of_no_file(tmp_path: Path, size: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    files = [{"path": "config.json", "size": size, "blake3": "x"}]
    (tmp_path / "endpoint-package.json").write_text(json.dumps({"schema": 1, "files": files}))
    for command in ("inspect", "verify"):
        result = run(command, str(tmp_path))
        assert (result.exit_code, "endpoint-package.json cannot be read" in result.stderr) == (1, True)


def test_a_model_of_the_hub_is_packed_from_its_cache(model: Path, tmp_path: Path) -> None:
    """As the hub's client lays it out: links to blobs, here without a network."""
    repository = tmp_path / "hub" / "models--org--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "blobs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    for path in model.iterdir():
        blob = repository / "blobs" / path.name
        path.rename(blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    environ = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PACK_TWICE, "pack", "org/tiny", "--to", str(tmp_path / "out")]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    assert not (tmp_path / "out" / "config.json").is_symlink()
    weights = repository / "blobs" / "model.safetensors"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights.read_bytes()
    command[-3] = "org/elsewhere"
    refused = subprocess.run([*command[:-1], str(tmp_path / "no")], env=environ, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "cannot be fetched from the hub" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.txt").write_text("x")
    for name in ("empty", "other", "nowhere"):
        result = run("pack", tmp_path / name, "--to", tmp_path / "out")
        assert result.exit_code == 1, result.output
        assert "MODEL" in result.stderr


def test_settings_that_no_endpoint_has_are_not_packed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("max_num_seq: 4\n")
    result = run("pack", model, "--to", tmp_path / "out", "--config", tmp_path / "settings.yaml")
    assert result.exit_code == 1
    assert "max_num_seqs" in result.stderr


def _as_mounted(folder: Path) -> Any:
    """A fetch that finds `/opt/ml/model` in the folder."""
    from handler.config.loading.file_reader import fetch

    return lambda location: fetch(location.replace("/opt/ml/model", str(folder)))


def test_settings_are_taken_as_inline_json_and_from_a_path_with_spaces_around_it(model: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"max_num_seqs": 4}')
    for number, config in enumerate((' {"max_num_seqs": 4} ', f" {tmp_path}/settings.json ")):
        result = run("pack", model, "--to", tmp_path / f"out{number}", "--config", config)
        assert result.exit_code == 0, result.output
        assert (tmp_path / f"out{number}" / "endpoint.yaml").read_text() == "max_num_seqs: 4\n"


@pytest.mark.parametrize("config", [" ", "{", "no.yaml", '{"max_num_seqs": "x"}', "."])
def test_settings_that_cannot_be_read_are_an_error(model: Path, tmp_path: Path, config: str) -> None:
    result = run("pack", model, "--to", tmp_path / "out", "--config", config)
    assert result.exit_code in (1, 2), result.output
    assert "Error: " in result.output


@pytest.mark.parametrize("place", ["s3://bucket/prefix", "s3://bucket/model.tar.gz", "file:///x"])
def test_a_uri_is_no_folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run("pack", model, "--to", place)
    assert result.exit_code == 2, result.output
    assert "neuron-endpoint push" in result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_inspect_shows_no_secret_of_the_settings(model: Path, tmp_path: Path) -> None:
    (model / "endpoint.yaml").write_text("max_num_seqs: 4\n")
    assert run("pack", model, "--to", tmp_path / "out").exit_code == 0
    (tmp_path / "out" / "endpoint.yaml").write_text(
        "neuron_env:\n  MY_TOKEN: abcdefgh12345\n  MODE: plain\nengine_args: {otlp: 'http://u:s3cretpass@host'}\n"
    )
    for form in ([], ["--json"]):
        output = run("inspect", tmp_path / "out", *form).output
        assert "MODE: plain" in output
        assert "abcdefgh" not in output
        assert "s3cretpass" not in output
