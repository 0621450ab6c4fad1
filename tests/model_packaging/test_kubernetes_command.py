"""`neuron-endpoint kubernetes` of a package in S3: its sizes, and its graphs where a pod finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

import sample_model
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from tests.model_packaging.command import run

IMAGE = ("--image", "registry/neuron-endpoint:0.1")


def environment(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found = {one["kind"]: one for one in yaml.safe_load_all(result.stdout)}
    container = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one.get("value") for one in container["env"]}


@pytest.mark.parametrize("kind", ["compiled", "store"])
def test_a_packages_graphs_are_named_by_their_place_in_s3(s3: Any, bucket: str, tmp_path: Path, kind: str) -> None:
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    (graphs / "model.pt").write_bytes(b"graph")
    (graphs / "neuron_config.json").write_text("{}")
    artifacts = str(graphs)
    if kind == "store":
        artifacts = f"file://{tmp_path}/store"
        ArtifactStore.open(artifacts).publish(graphs, CompileInputs("ab" * 32, "graph", {}))
    to = f"s3://{bucket}/{kind}/"
    pushed = run("push", str(sample_model.path()), to, "--artifacts", artifacts)
    assert pushed.exit_code == 0, pushed.output
    for model in ((to,), ("--set", f"ENDPOINT_MODEL={to}")):
        env = environment(run("kubernetes", "chat", *model, "--cpu", *IMAGE))
        assert env["ENDPOINT_MODEL"] == to
        if kind == "compiled":
            assert env["ENDPOINT_COMPILED_ARTIFACTS"] == f"{to}compiled/"
        else:
            assert env["ENDPOINT_ARTIFACT_STORE"] == f"{to}artifacts"
    # An own store is not replaced by the package's. Options that leave the package's graphs aside are refused.
    mine = ("--set", f"ENDPOINT_ARTIFACT_STORE=s3://{bucket}/mine")
    chosen = environment(run("kubernetes", "chat", to, "--cpu", *mine, *IMAGE))
    assert chosen["ENDPOINT_ARTIFACT_STORE"] == f"s3://{bucket}/mine"
    for option in (("--store-class", "efs"), ("--compile-job",)):
        refused = run("kubernetes", "chat", to, "--cpu", *mine, *option, *IMAGE)
        assert refused.exit_code != 0
        assert f"{option[0]}: " in refused.stderr
        assert "has its own graphs" in refused.stderr


def test_a_store_beside_the_shared_volume_is_refused_and_the_secret_has_the_namespace(
    s3: Any, bucket: str, tmp_path: Path
) -> None:
    to = f"s3://{bucket}/plain/"
    assert run("push", str(sample_model.path()), to).exit_code == 0
    words = ("kubernetes", "chat", to, "--cpu", *IMAGE, "--store-class", "efs", "--set", "HF_TOKEN=hf_VerySecret1234")
    refused = run(*words, "--set", f"ENDPOINT_ARTIFACT_STORE=s3://{bucket}/mine")
    assert (refused.exit_code, "--store-class: ENDPOINT_ARTIFACT_STORE" in refused.stderr) == (2, True)
    document = tmp_path / "endpoint.yaml"
    document.write_text(f"artifact_store: s3://{bucket}/mine\n")
    assert "--store-class: artifact_store" in run(*words, "--config", str(document)).stderr
    plain = run(*words, "--set", "ENDPOINT_STREAM_DEADLINE=1e2", "--set", "AWS_ACCOUNT_ID=089123456789").stdout
    assert ': "1e2"' in plain
    assert ': "089123456789"' in plain
    assert "kubectl create secret generic chat --from-literal=HF_TOKEN" in run(*words).stdout
    assert "generic -n ai chat --from-literal=HF_TOKEN" in run(*words, "--namespace", "ai").stdout


@pytest.mark.slow
def test_a_start_that_compiles_has_more_time(s3: Any, bucket: str) -> None:
    to = f"s3://{bucket}/plain/"
    assert run("push", str(sample_model.path()), to).exit_code == 0
    settings = ("--set", "SM_VLLM_MAX_MODEL_LEN=512", "--set", "SM_VLLM_MAX_NUM_SEQS=4")
    words = ("kubernetes", "chat", to, "--instance", "inf2.xlarge", *settings, *IMAGE)
    assert "and a compile" in run(*words).stdout
    ahead = run(*words, "--set", f"ENDPOINT_ARTIFACT_STORE=s3://{bucket}/store")
    assert "and a compile" in ahead.stdout  # nothing is in it yet
    assert "and a compile" not in run(*words, "--compiled").stdout
    assert "ENDPOINT_COMPILED_ARTIFACTS" not in environment(ahead)


@pytest.mark.parametrize(
    "setting",
    ["ENDPOINT_SCRATCH=/data", "ENDPOINT_BATCH_STORE=file:///data/b", "ENDPOINT_ARTIFACT_STORE=file:///data/a"],
)
def test_what_is_written_is_where_the_pod_may_write(setting: str) -> None:
    refused = run("kubernetes", "chat", "org/name", "--cpu", *IMAGE, "--startup-seconds", "60", "--set", setting)
    assert (refused.exit_code, f"{setting.partition('=')[0]}: /data" in refused.stderr) == (1, True), refused.output
