"""Two nodes under one model, on loopback: `serve` is the first, `neuron-endpoint node` the second.

By vLLM's own executor (one engine whose tensors are spread) and by its data parallel engines, on the CPU build. Two
engines more than CI has time for: SEVERAL_NODES=1 runs it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample_model
from sample_model import facts
from tests.endpoint.serve_process import ENGINE_ENVIRONMENT, ServeProcess, free_port

pytestmark = [
    pytest.mark.skipif(not os.environ.get("SEVERAL_NODES"), reason="two engines more: SEVERAL_NODES=1 runs it"),
]
COMMAND = Path(sys.executable).with_name("neuron-endpoint")
WAYS = {
    "tensor parallel": {
        "SM_VLLM_NNODES": "2",
        "SM_VLLM_MASTER_ADDR": "127.0.0.1",
        "SM_VLLM_MASTER_PORT": "PORT",
        "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
        "SM_VLLM_DISTRIBUTED_EXECUTOR_BACKEND": "mp",
    },
    "data parallel": {
        "SM_VLLM_DATA_PARALLEL_SIZE": "2",
        "SM_VLLM_DATA_PARALLEL_SIZE_LOCAL": "1",
        "SM_VLLM_DATA_PARALLEL_ADDRESS": "127.0.0.1",
        "SM_VLLM_DATA_PARALLEL_RPC_PORT": "PORT",
    },
}
Nodes = tuple[ServeProcess, subprocess.Popen[bytes]]


@pytest.fixture(params=WAYS)
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    port = str(free_port())
    shared = {name: port if value == "PORT" else value for name, value in WAYS[request.param].items()}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "ENDPOINT_MODEL": str(sample_model.path())}
    first = ServeProcess(tmp_path, {**shared, "ENDPOINT_SCRATCH": str(tmp_path / "scratch")})
    environ = {**os.environ, **ENGINE_ENVIRONMENT, **shared}
    with (tmp_path / "second.log").open("wb") as log:
        words: list[str | Path] = [COMMAND, "node", "--rank", "1"]
        second = subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)
    try:
        first.wait_port()
        first.wait_ready()
        yield first, second
    except AssertionError:
        print((tmp_path / "second.log").read_text(errors="replace")[-4000:])
        raise
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


def test_both_nodes_work_and_the_loss_of_one_is_told(nodes: Nodes, request: pytest.FixtureRequest) -> None:
    first, second = nodes
    before = answered(first)
    body = {"messages": [{"role": "user", "content": "What does /ping mean?"}], "temperature": 0}
    for _ in range(8):
        reply = first.client.post("/invocations", json=body).json()
        assert reply["choices"][0]["message"]["content"] == facts.by_name("ping").answer
    after = answered(first)
    engines = {"0", "1"} if "data" in request.node.name else {"0"}
    assert {engine for engine in after if after[engine] > before.get(engine, 0.0)} == engines
    assert second.poll() is None
    os.killpg(second.pid, signal.SIGKILL)
    with socket.create_connection(("127.0.0.1", first.port)) as connection:
        if "tensor" in request.node.name:  # an idle engine asks nothing of its workers. The next engine answers this
            content = json.dumps(body)
            head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
            connection.sendall(f"POST /invocations HTTP/1.1\r\n{head}\r\n\r\n{content}".encode())
        first.until(lambda: first.ping()[0] == 500, 60)
        assert json.loads(first.ping()[1])["reason"].startswith("the engine: ")
