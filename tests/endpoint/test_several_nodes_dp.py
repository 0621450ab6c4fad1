"""Two nodes under one model, on loopback: `serve` and its engine as the first, `vllm serve --headless` as the second.

vLLM's data parallel engines on the CPU build. Two engines more than CI has time for: SEVERAL_NODES=1 runs it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serve_process import ENGINE_ENVIRONMENT, ServeProcess, free_port

import sample_model
from sample_model import facts

pytestmark = [
    pytest.mark.skipif(not os.environ.get("SEVERAL_NODES"), reason="two engines more: SEVERAL_NODES=1 runs it"),
    pytest.mark.serving_classes,
]
VLLM = Path(sys.executable).with_name("vllm")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[ServeProcess, subprocess.Popen[bytes]]]:
    model, port = str(sample_model.path()), free_port()
    shared = {
        "SM_VLLM_DATA_PARALLEL_SIZE": "2",
        "SM_VLLM_DATA_PARALLEL_SIZE_LOCAL": "1",
        "SM_VLLM_DATA_PARALLEL_ADDRESS": "127.0.0.1",
        "SM_VLLM_DATA_PARALLEL_RPC_PORT": str(port),
    }
    loopback = {"GLOO_SOCKET_IFNAME": "lo"}
    scratch = str(tmp_path / "scratch")
    first = ServeProcess(tmp_path, {**shared, **loopback, "ENDPOINT_MODEL": model, "ENDPOINT_SCRATCH": scratch})
    words = ["serve", model, "--headless", "--data-parallel-start-rank", "1", "--enforce-eager"]
    words += [f"--{name.removeprefix('SM_VLLM_').lower().replace('_', '-')}={value}" for name, value in shared.items()]
    words += ["--max-num-seqs=16", "--max-model-len=1024"]
    kept = {name: value for name, value in ENGINE_ENVIRONMENT.items() if not name.startswith("SM_VLLM_")}
    with (tmp_path / "second.log").open("wb") as log:
        second = subprocess.Popen(
            [VLLM, *words], env={**os.environ, **kept, **loopback}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        first.wait_port()
        first.wait_ready()
        yield first, second
    finally:
        first.kill_all()
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
        second.wait(10)


def answered(first: ServeProcess) -> dict[str, float]:
    """Requests by the engine that answered them."""
    found: dict[str, float] = {}
    pattern = r'vllm:request_success_total\{engine="(\d)"[^}]*\} ([\d.]+)'
    for engine, count in re.findall(pattern, first.client.get("/metrics").text):
        found[engine] = found.get(engine, 0.0) + float(count)
    return found


def test_both_nodes_answer_and_the_loss_of_one_is_told(
    nodes: tuple[ServeProcess, subprocess.Popen[bytes]],
) -> None:
    first, second = nodes
    before = answered(first)
    body = {"messages": [{"role": "user", "content": "What does /ping mean?"}], "temperature": 0}
    for _ in range(8):
        reply = first.client.post("/invocations", json=body).json()
        assert reply["choices"][0]["message"]["content"] == facts.by_name("ping").answer
    after = answered(first)
    assert {engine for engine in after if after[engine] > before.get(engine, 0.0)} == {"0", "1"}
    os.killpg(second.pid, signal.SIGKILL)
    first.until(lambda: first.ping()[0] == 500, 60)
    assert "no progress" in first.ping()[1]
