"""What happens when the engine stalls, dies, or the instance is taken away: seen from outside, on a `serve` of its own.

The tests run in the file's order on one process, because each leaves it as the next one needs it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

import sample_model
from model_packaging.deployment.container_log import as_text
from model_packaging.deployment.diagnosis import diagnose
from tests.endpoint.serve_process import ServeProcess, session_members

pytestmark = pytest.mark.engine

LONG = {"prompt": "Question: Tell me a story.\nAnswer:", "max_tokens": 900, "ignore_eos": True, "temperature": 0}

# Long enough for twelve streams on any machine: how long the default lasts is no matter of these tests.
DRAIN = 240
# Streams that fill the engine's slots before it is killed, and requests that wait for one.
BEGUN, WAITING = 32, 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """`serve` with /opt/ml laid out in a folder: the model is in <folder>/model."""
    directory = tmp_path_factory.mktemp("failure")
    (directory / "model").symlink_to(sample_model.path())
    with ServeProcess(
        directory,
        {
            "SAGEMAKER_BASE_DIR": str(directory),
            "ENDPOINT_STALL": "4",
            "ENDPOINT_DRAIN": str(DRAIN),
            "ENDPOINT_DEADLINE": "600",
            "ENDPOINT_LOG_FORMAT": "json",
            "ENDPOINT_PRELOAD_AFTER": "1",
            "SM_VLLM_MAX_NUM_SEQS": str(BEGUN),
            "VLLM_CPU_KVCACHE_SPACE": "",  # as where nobody has set it
        },
    ).serving() as process:
        yield process


@dataclass
class Reply:
    """What a raw client saw of one request."""

    status: int
    body: bytes
    ended_properly: bool


def post(served: ServeProcess, body: dict[str, object], begun: Callable[[], object] = lambda: None) -> Reply:
    """One request over a raw socket, so that a missing end mark is seen. `begun`: called after the first bytes."""
    payload = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=DRAIN) as connection:
        head = "POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        received = connection.recv(65536)
        begun()
        while data := connection.recv(65536):
            received += data
    header, _, content = received.partition(b"\r\n\r\n")
    chunked = b"chunked" in header
    return Reply(int(header.split()[1]), content, content.endswith(b"0\r\n\r\n") if chunked else True)


def start_streams(served: ServeProcess, pool: ThreadPoolExecutor, count: int) -> list[Future[Reply]]:
    """Streams that have all begun. None is read before: its reader would take the interpreter from those that begin."""
    barrier = threading.Barrier(count + 1)
    futures = [pool.submit(post, served, {**LONG, "stream": True}, barrier.wait) for _ in range(count)]
    barrier.wait(60)
    return futures


def test_an_engine_that_stands_still_turns_ping_to_500_and_back(served: ServeProcess) -> None:
    (core,) = served.engine_pids()
    os.kill(core, signal.SIGSTOP)
    try:
        served.until(lambda: served.ping()[0] == 500, 10)
        assert "no progress" in served.ping()[1]
    finally:
        os.kill(core, signal.SIGCONT)
    served.until(lambda: served.ping()[0] == 200, 5)
    assert post(served, {"prompt": "a", "max_tokens": 2}).status == 200


def waiting_bodies() -> list[dict[str, object]]:
    """Whole replies and streams, each by the engine's loop and by a thread. Every prompt is another one."""
    bodies: list[dict[str, object]] = []
    for place in range(WAITING):
        text = {"prompt": f"Question: What is {place}?\nAnswer:", "max_tokens": 8, "temperature": 0}
        long = {"user": "x" * 9000} if place % 2 else {}  # too long for the loop
        bodies.append({**text, **long, "stream": place % 4 > 1})
    return bodies


def text_of(reply: Reply) -> str:
    """The text of a whole reply, or of a stream."""
    if not reply.body.startswith(b"{"):
        events = [part.partition(b"data: ")[2] for part in reply.body.split(b"\n\n") if b"data: {" in part]
        return "".join(json.loads(event)["choices"][0]["text"] for event in events if b'"choices":[{' in event)
    return str(json.loads(reply.body)["choices"][0]["text"])


def structured(regex: str) -> dict[str, object]:
    return {"prompt": "a", "max_tokens": 8, "temperature": 0, "structured_outputs": {"regex": regex}}


def grammar_child(served: ServeProcess) -> psutil.Process:
    """The process that compiles grammars before the engine does."""
    started = psutil.Process(served.process.pid).children(recursive=True)
    trials = [process for process in started if any("trial_process" in word for word in process.cmdline())]
    (child,) = [process for process in trials if process.parent() in trials]
    return child


@pytest.mark.timeout(600)
def test_a_killed_engine_fails_what_has_begun_and_its_successor_answers_the_rest(served: ServeProcess) -> None:
    """The rest was at every stage: not given to the engine, waiting for a slot or for its grammar, or half done."""
    (core,) = served.engine_pids()
    served.until(lambda: "vLLM is loaded for the next serving process" in served.log, 120)
    bodies = [*waiting_bodies(), structured("(yes|no)")]
    with ThreadPoolExecutor(BEGUN + len(bodies) + 1) as pool:
        expected = [text_of(reply) for reply in pool.map(lambda body: post(served, body), bodies)]
        half_done = pool.submit(post, served, LONG)
        served.until(lambda: served.metric("endpoint_requests_in_engine") == 1, 20)
        streams = start_streams(served, pool, BEGUN - 1)
        os.kill(core, signal.SIGSTOP)  # no stream ends before the others have come
        grammar_child(served).suspend()
        waiting = [pool.submit(post, served, body) for body in bodies]
        not_given = pool.submit(post, served, structured("(red|blue)"))
        served.until(lambda: served.metric("endpoint_requests_in_engine") == BEGUN + len(bodies), 20)
        served.until(lambda: served.metric("endpoint_requests_in_flight") == BEGUN + len(bodies) + 1, 20)
        os.kill(core, signal.SIGKILL)
        served.until(lambda: served.ping()[0] != 200, 5)
        refused = post(served, {"prompt": "a", "max_tokens": 2})
        assert refused.status == 503
        for stream in streams:
            reply = stream.result(60)
            assert reply.status == 200  # it had begun
            assert b'"code":"engine_failed"' in reply.body
            assert b"[DONE]" not in reply.body
            assert not reply.ended_properly
        served.until(
            lambda: "the engine's process was ended by SIGKILL, often because memory ran out" in served.log, 60
        )
        served.wait_ready()
        replies = [request.result(DRAIN) for request in waiting]
        assert text_of(half_done.result(DRAIN)).startswith(text_of(streams[0].result()))
        assert text_of(not_given.result(DRAIN)) in ("red", "blue")
    assert [reply.status for reply in replies] == [200] * len(bodies)
    assert [text_of(reply) for reply in replies] == expected
    assert all(reply.ended_properly for reply in replies)
    assert served.engine_pids() != [core]
    assert len(served.engine_pids()) == 1
    assert post(served, {"prompt": "a", "max_tokens": 2}).status == 200


def test_the_cache_is_what_the_plan_needs_and_an_end_by_sigkill_is_called_that(served: ServeProcess) -> None:
    sequences = rf"{BEGUN} sequences of 1024 tokens take 0\.\d\d GiB of key-value cache; the plan sets it to 1 GiB"
    assert re.search(f"VLLM_CPU_KVCACHE_SPACE: {sequences}", served.log)
    found = diagnose("", [as_text(line) for line in served.log.splitlines()])
    assert found is not None
    assert found.cause.startswith("the host's memory is full: the engine's process was ended by SIGKILL")
    assert "VLLM_CPU_KVCACHE_SPACE" in found.fix


def test_the_log_says_which_requests_were_in_the_dead_engine(served: ServeProcess) -> None:
    (died,) = [json.loads(line) for line in served.log.splitlines() if '"engine_died"' in line]
    requests = died["requests"]
    assert len({request["request_id"] for request in requests}) == BEGUN + WAITING + 2
    assert sum(request["run_again"] for request in requests) == 1 + WAITING + 2
    grammars = [request for request in requests if "structured_outputs" in request["fields"]]
    assert [request["fields"] for request in grammars] == [
        ["max_tokens", "prompt", "structured_outputs", "temperature"]
    ] * 2
    assert "Tell me a story" not in served.log


def test_sigterm_lets_streams_finish_and_refuses_new_requests(served: ServeProcess) -> None:
    with ThreadPoolExecutor(16) as pool:
        streams = start_streams(served, pool, 12)
        served.process.send_signal(signal.SIGTERM)
        served.until(lambda: served.ping()[0] == 503, 5)
        refused = post(served, {"prompt": "a", "max_tokens": 2})
        assert refused.status == 503
        assert json.loads(refused.body)["error"]["code"] == "draining"
        replies = [stream.result(DRAIN) for stream in streams]
    assert all(reply.ended_properly for reply in replies)
    assert all(b"[DONE]" in reply.body for reply in replies)
    assert all(reply.body.count(b'"finish_reason":"length"') == 1 for reply in replies)
    assert served.process.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        served.client.get("/ping")


def test_sigterm_while_vllm_is_imported_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    served = ServeProcess(tmp_path, {"SAGEMAKER_BASE_DIR": str(tmp_path)})
    served.wait_port()
    served.until(lambda: "import vLLM" in served.ping()[1], 30)
    assert served.terminate() == 0
    deadline = time.monotonic() + 30
    while left := session_members(served.process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_streams_that_outlast_the_drain_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    served = ServeProcess(tmp_path, {"SAGEMAKER_BASE_DIR": str(tmp_path), "ENDPOINT_DRAIN": "0.2"})
    served.wait_port()
    served.wait_ready()
    with ThreadPoolExecutor(16) as pool:
        streams = start_streams(served, pool, 16)
        served.process.send_signal(signal.SIGTERM)
        replies = [stream.result(DRAIN) for stream in streams]
    assert not any(reply.ended_properly for reply in replies)
    assert all(b'"code":"draining"' in reply.body and b"[DONE]" not in reply.body for reply in replies)
    assert served.process.wait(60) == 0


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({"ENDPOINT_MODL": "x"}, "ENDPOINT_MODEL"),
        ({"ENDPOINT_MAX_CONCURRENT": "many"}, "ENDPOINT_MAX_CONCURRENT"),
        ({"ENDPOINT_MODEL": "/nowhere/at/all"}, "ENDPOINT_MODEL"),
        ({"SM_VLLM_PORT": "9"}, "SAGEMAKER_BIND_TO_PORT"),
        ({"SAGEMAKER_MODEL_SERVER_WORKERS": "2"}, "SAGEMAKER_MODEL_SERVER_WORKERS: one process serves the one engine"),
    ],
)
def test_a_setting_that_cannot_work_ends_the_process_and_names_itself(
    environment: dict[str, str], names: str, tmp_path: Path
) -> None:
    process = ServeProcess(tmp_path, environment)
    assert process.process.wait(60) != 0
    assert names in process.log
    assert "Traceback" not in process.log


def test_an_engine_argument_that_vllm_does_not_know_names_its_variable(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    process = ServeProcess(tmp_path, {"SAGEMAKER_BASE_DIR": str(tmp_path), "SM_VLLM_MAX_NUM_SEQ": "4"})
    assert process.process.wait(60) != 0
    assert "SM_VLLM_MAX_NUM_SEQ:" in process.log
    assert "Did you mean SM_VLLM_MAX_NUM_SEQS?" in process.log
