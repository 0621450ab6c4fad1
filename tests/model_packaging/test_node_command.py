"""`neuron-endpoint node`, as a pod of a LeaderWorkerSet runs it, up to becoming vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import sample_model

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "model_packaging", "node")
SPREAD = {
    "SM_VLLM_NNODES": "2",
    "SM_VLLM_MASTER_ADDR": "127.0.0.1",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
    "ENDPOINT_LINE": "cpu",
    "ENDPOINT_MODEL": str(sample_model.path()),
}


def run(*words: str, modules: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """:param modules: has packages that take the place of installed ones."""
    kept = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(map(str, filter(None, (modules, ROOT))))}
    return subprocess.run([*COMMAND, *words], env={**kept, **environ}, capture_output=True, text=True, timeout=60)


def test_it_becomes_vllm_with_the_plans_arguments(tmp_path: Path) -> None:
    program = tmp_path / "vllm" / "entrypoints" / "cli" / "main.py"
    program.parent.mkdir(parents=True)
    for package in list(program.parents)[:3]:
        (package / "__init__.py").touch()
    program.write_text("import sys\nprint(*sys.argv[1:], sep='\\n')\n")
    done = run(modules=tmp_path, LWS_WORKER_INDEX="1", **SPREAD)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["serve", str(sample_model.path()), "--headless"]
    assert {"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--tensor-parallel-size=2"} <= set(said)


def test_a_dry_run_resolves_and_fetches_nothing() -> None:
    done = run("--rank", "1", "--dry-run", modules=None, **{**SPREAD, "SM_VLLM_MASTER_ADDR": "nowhere.invalid"})
    assert done.returncode == 0, done.stderr
    assert "--node-rank=1" in json.loads(done.stdout)["command"]


def test_the_forks_nodes_are_of_its_own_launcher() -> None:
    fork = {"ENDPOINT_LINE": "fork-0.9.1", "ENDPOINT_INSTANCE": "trn1.32xlarge", "ENDPOINT_NODES": "2"}
    fork["ENDPOINT_MODEL"] = str(sample_model.path())
    done = run("--rank", "1", "--dry-run", modules=None, MASTER_ADDR="10.0.0.4", **fork)
    assert (done.returncode, "ENDPOINT_NODES" in done.stderr, "SM_VLLM" in done.stderr) == (1, True, False)


def test_what_would_not_work_is_refused() -> None:
    alone = run("--rank", "1", ENDPOINT_LINE="cpu", ENDPOINT_MODEL=str(sample_model.path()))
    assert (alone.returncode, "SM_VLLM_MASTER_ADDR" in alone.stderr) == (1, True)
    plugin = run("--rank", "1", modules=None, **{**SPREAD, "ENDPOINT_LINE": "nxdi-0.16"})
    assert (plugin.returncode, "several-nodes" in plugin.stdout) == (1, True)
    assert "2 is not the rank of a node" in run("--rank", "2", modules=None, **SPREAD).stderr
    assert run("--rank", "0", modules=None, **SPREAD).returncode == 2
    assert run(modules=None, **SPREAD).returncode == 2
