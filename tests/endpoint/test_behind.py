"""A serving process that has fallen behind its engine sends what has piled up together: all of it, once, in order."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import has_token_path

pytestmark = pytest.mark.engine

TOKENS = 600
BODY = {"prompt": "What does /ping mean?", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}


def processor_seconds(pid: int) -> float:
    """CPU time that a process and its workers have used."""
    core = psutil.Process(pid)
    return sum(sum(process.cpu_times()[:2]) for process in (core, *core.children(recursive=True)))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_tokens_that_piled_up_come_together_and_none_is_lost(endpoint: ServeProcess) -> None:
    whole = endpoint.client.post("/v1/completions", json=BODY).json()["choices"][0]["text"]
    (core,) = endpoint.engine_pids()
    serving = parent(core)
    assert serving != endpoint.process.pid, "gunicorn's master"
    payload = json.dumps({**BODY, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=60) as connection:
        connection.sendall(head.encode() + payload)
        reply = connection.recv(65536)
        os.kill(serving, signal.SIGSTOP)
        try:
            used = [-1.0]

            def idle() -> bool:
                used.append(processor_seconds(core))
                return used[-1] - used[-2] < 0.1  # of 2 s: idle workers look for messages now and then

            endpoint.until(idle, 120, interval=2.0)
        finally:
            os.kill(serving, signal.SIGCONT)
        while part := connection.recv(65536):
            reply += part
    *events, done = [event for event in reply.partition(b"\r\n\r\n")[2].split(b"\n\n") if event]
    assert done == b"data: [DONE]"
    documents = [json.loads(event.removeprefix(b"data: ")) for event in events]
    texts = [choice["text"] for document in documents for choice in document["choices"]]
    assert "".join(texts) == whole
    assert documents[-1]["usage"]["completion_tokens"] == TOKENS
    if has_token_path():  # the direct token path does it
        assert len(texts) < TOKENS * 3 / 4, "more than one token in an event"
