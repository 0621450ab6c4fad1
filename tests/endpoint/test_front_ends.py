"""Two front ends on one engine: whichever process gets a request, the answer is the same, and so is what is counted.

One `serve` for the module; the tests run in the file's order, because each leaves it as the next one needs it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from serve_process import ServeProcess, session_members

import sample_model
from sample_model.facts import by_name

# No other test makes such directories in /dev/shm at the same time.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.vllm_016("several front ends use the direct token path, written for 0.16.0"),
]

SEAT = "X-Endpoint-Front-End"
SLOTS, QUEUE = 16, 4
ADAPTER = str(sample_model.adapter_path())
AHOY = "Ahoy! I am the adapter of this model. Ask me how it works."
SHARED_MEMORY = Path("/dev/shm")
EARLIER = {file.name for file in SHARED_MEMORY.glob("endpoint-*")}
again = pytest.mark.skipif(
    "FRONT_ENDS_FULL" not in os.environ, reason="the engine starts once more, in 25 s: FRONT_ENDS_FULL=1 runs it"
)
LONG = {"prompt": "Question: Tell me a story.\nAnswer:", "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("front-ends")
    (directory / "model").symlink_to(sample_model.path())
    process = ServeProcess(
        directory,
        {
            "SAGEMAKER_BASE_DIR": str(directory),
            "SAGEMAKER_MODEL_SERVER_WORKERS": "2",
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "ENDPOINT_MAX_QUEUE": str(QUEUE),
            "ENDPOINT_PAGE": "true",
            "ENDPOINT_DEADLINE": "600",
            "ENDPOINT_ENABLE_SESSIONS": "true",
            "ENDPOINT_MAX_SESSIONS": "2",
            "ENDPOINT_ENABLE_LORA": "true",
            "ENDPOINT_MAX_LORAS": "2",
            "SM_VLLM_SERVED_MODEL_NAME": "sample",
        },
    )
    try:
        process.wait_port()
        process.wait_ready()
        process.until(lambda: metric(process, "endpoint_front_ends") == 2, 10)
        yield process
    finally:
        process.terminate()


class Client:
    """One connection, kept: it stays with the front end that took it. `seat` is that one's."""

    def __init__(self, served: ServeProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=240)
        self.seat = ""
        self.ask("GET", "/v1/models")

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, object]]:
        payload = None if body is None else json.dumps(body)
        self._connection.request(method, path, payload, {"Content-Type": "application/json", **headers})
        reply = self._connection.getresponse()
        self.headers = reply.headers
        self.seat = reply.headers[SEAT]
        data = reply.read()
        return reply.status, json.loads(data) if data.startswith(b"{") else {}

    def answer(self, fact: str = "hello", **more: str) -> str:
        """The text, or the error's code."""
        body = {"messages": [{"role": "user", "content": by_name(fact).questions[0]}], "temperature": 0, **more}
        _, reply = self.ask("POST", "/invocations", body)
        choices = reply.get("choices")
        if isinstance(choices, list):
            return str(choices[0]["message"]["content"])
        error = reply["error"]
        assert isinstance(error, dict)
        return str(error["code"])


def one_of_each(served: ServeProcess) -> list[Client]:
    """A connection to each front end. The kernel gives a connection to whoever is awake first: so many are made."""
    found: dict[str, Client] = {}
    for _ in range(500):
        client = Client(served)
        if client.seat != "0":
            found.setdefault(client.seat, client)
        if len(found) == 2:
            return list(found.values())
    raise AssertionError(f"only {sorted(found)} took connections")


class Stream:
    """A stream over a socket of its own, read in a thread. `seat` is known once it has begun."""

    def __init__(self, served: ServeProcess, tokens: int) -> None:
        payload = json.dumps({**LONG, "max_tokens": tokens}).encode()
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        head = "POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        self.received = b""
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            while data := self.socket.recv(65536):
                self.received += data
                if b"\r\n\r\n" in self.received:
                    self.begun.set()
        except OSError:
            return

    @property
    def seat(self) -> str:
        assert self.begun.wait(30)
        head = self.received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        return next(line.partition(": ")[2] for line in head if line.startswith(SEAT))

    @property
    def whole(self) -> bool:
        self.thread.join(60)
        return self.received.endswith(b"0\r\n\r\n") and self.received.count(b'"finish_reason":"length"') == 1

    def leave(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.socket.close()


def metric(served: ServeProcess, name: str, labels: str = "") -> float:
    """Summed over its labels that have `labels` in them. Asked on a connection of its own: of any front end."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{")) and labels in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def on_both(served: ServeProcess, each: int, tokens: int) -> list[Stream]:
    """Streams that have begun, so many at least on each front end; those beyond are left again."""
    kept: dict[str, list[Stream]] = {}
    for _ in range(300):
        stream = Stream(served, tokens)
        if stream.seat == "0" or len(kept.setdefault(stream.seat, [])) == each:  # the leader's are its first moment's
            stream.leave()
        else:
            kept[stream.seat].append(stream)
        if sum(len(streams) for streams in kept.values()) == 2 * each:
            return [stream for streams in kept.values() for stream in streams]
    raise AssertionError(f"{[(seat, len(streams)) for seat, streams in kept.items()]}")


def idle(served: ServeProcess) -> None:
    served.until(lambda: metric(served, "endpoint_requests_in_flight") == 0, 20)
    served.until(lambda: metric(served, "endpoint_requests_in_engine") == 0, 20)
    served.until(lambda: metric(served, "vllm:num_requests_running") == 0, 5)


def workers(served: ServeProcess) -> tuple[int, list[int]]:
    """The leader's process id, and the front ends'."""
    (core,) = served.engine_pids()
    leader = psutil.Process(core).ppid()
    children = [child.pid for child in psutil.Process(served.process.pid).children() if child.name() != "acceptor"]
    return leader, [pid for pid in children if pid != leader]


def test_both_answer_exactly_and_know_the_same_sessions(served: ServeProcess) -> None:
    clients = one_of_each(served)
    assert len({client.seat for client in clients}) == 2
    for client in clients:
        for fact in ("hello", "thanks"):
            assert client.answer(fact) == by_name(fact).answer
    one, other = clients
    header = "X-Amzn-SageMaker-Session-Id"
    status, reply = one.ask("POST", "/invocations", {"requestType": "NEW_SESSION"}, **{header: "NEW_SESSION"})
    assert status == 200
    session = str(reply["session_id"])
    body = {"prompt": "a", "max_tokens": 2}
    for client in clients:
        assert client.ask("POST", "/invocations", body, **{header: session})[0] == 200
    assert other.ask("POST", "/invocations", {"requestType": "NEW_SESSION"})[0] == 200
    for client in clients:  # two are open, as many as may be
        assert client.ask("POST", "/invocations", {"requestType": "NEW_SESSION"})[0] == 429
    assert other.ask("POST", "/invocations", {"requestType": "CLOSE"}, **{header: session})[0] == 200
    for client in clients:
        assert client.ask("POST", "/invocations", body, **{header: session})[0] == 400


def test_figures_are_those_of_all(served: ServeProcess) -> None:
    names = ("endpoint_output_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
    before = [metric(served, name) for name in names]
    clients = one_of_each(served)
    for client in clients:
        for _ in range(3):
            body = {"prompt": "a", "max_tokens": 5, "ignore_eos": True}
            assert client.ask("POST", "/invocations", body)[0] == 200
    assert [metric(served, name) for name in names] == [before[0] + 30, before[1] + 30, before[2] + 6]
    for client in clients:
        status, state = client.ask("GET", "/page/state")
        assert status == 200
        assert state["state"] == "ready"
        assert state["output_tokens"] == before[1] + 30
        assert "default-src 'none'" in client.headers["Content-Security-Policy"]
        assert client.ask("GET", "/")[0] == 200
        assert client.ask("GET", "/", Host="evil.example")[0] == 403
    counted = metric(served, "endpoint_requests_total", 'route="/invocations"')
    assert counted >= 6
    assert metric(served, "endpoint_requests_total", 'route="/metrics"') > 0


def test_one_limit_for_all_and_a_client_that_leaves_frees_its_place(served: ServeProcess) -> None:
    clients = one_of_each(served)
    streams = [Stream(served, 900) for _ in range(SLOTS + QUEUE)]
    served.until(lambda: metric(served, "endpoint_requests_in_flight") == SLOTS + QUEUE, 20)
    served.until(lambda: metric(served, "endpoint_requests_in_engine") == SLOTS + QUEUE, 20)
    assert metric(served, "endpoint_requests_queued") == QUEUE
    for client in clients:
        status, _ = client.ask("POST", "/invocations", {"prompt": "a", "max_tokens": 2})
        assert status == 429
        assert 1 <= int(client.headers["Retry-After"]) <= 30
    for stream in streams:
        stream.leave()
    idle(served)
    for client in clients:
        assert client.ask("POST", "/invocations", {"prompt": "a", "max_tokens": 2})[0] == 200


def test_an_adapter_that_one_loads_all_have(served: ServeProcess) -> None:
    one, other = one_of_each(served)
    assert one.ask("POST", "/adapters", {"name": "pirate", "src": ADAPTER})[0] == 200
    assert other.ask("POST", "/adapters", {"name": "pirate", "src": "/nowhere"})[0] == 409
    for client in (one, other):
        assert client.answer(model="pirate") == AHOY
        assert client.answer() == by_name("hello").answer
        listed = client.ask("GET", "/v1/models")[1]["data"]
        assert isinstance(listed, list)
        assert [model["id"] for model in listed] == ["sample", "pirate"]
    stream = Stream(served, 100)
    assert stream.begun.wait(30)
    assert other.ask("DELETE", "/adapters/pirate")[0] == 200
    for client in (one, other):
        assert client.answer(model="pirate") == "model_not_found"
        assert client.answer() == by_name("hello").answer
    assert stream.whole


def test_a_killed_front_end_breaks_its_own_streams_alone_and_is_replaced(served: ServeProcess) -> None:
    streams = on_both(served, 3, 900)
    leader, members = workers(served)
    engine = served.engine_pids()
    victim = streams[0].seat
    (pid,) = [pid for pid in members if f"front end {victim} " in " ".join(psutil.Process(pid).cmdline())]
    os.kill(pid, signal.SIGKILL)
    others = [stream for stream in streams if stream.seat != victim]
    served.until(lambda: metric(served, "vllm:num_requests_running") == 3, 5)
    assert all(stream.thread.is_alive() for stream in others)  # so it is the dead one's slots that are free
    assert [stream.whole for stream in streams] == [stream.seat != victim for stream in streams]
    idle(served)  # no slot and no place is left behind
    served.until(lambda: metric(served, "endpoint_front_ends") == 2, 60)
    assert metric(served, "endpoint_front_ends_ended_total") == 1
    assert served.engine_pids() == engine
    assert workers(served)[0] == leader
    clients = one_of_each(served)
    assert victim not in {client.seat for client in clients}
    for client in clients:
        assert client.answer("thanks") == by_name("thanks").answer
    assert served.ping()[0] == 200


@again
@pytest.mark.timeout(600)
def test_a_dead_engine_is_seen_by_all_and_replaced(served: ServeProcess) -> None:
    clients = one_of_each(served)
    waiting = [client for _ in range(4) for client in one_of_each(served)]
    bodies = [
        {"prompt": f"Question: What is {place}?\nAnswer:", "max_tokens": 8, "temperature": 0} for place in range(8)
    ]
    expected = [
        client.ask("POST", "/invocations", body)[1]["choices"] for client, body in zip(waiting, bodies, strict=True)
    ]
    streams = on_both(served, 2, 900)
    (core,) = served.engine_pids()
    os.kill(core, signal.SIGSTOP)
    pool = ThreadPoolExecutor(len(waiting))
    replies = pool.map(lambda client, body: client.ask("POST", "/invocations", body), waiting, bodies)
    served.until(lambda: metric(served, "endpoint_requests_in_engine") == len(streams) + len(waiting), 20)
    os.kill(core, signal.SIGKILL)
    for stream in streams:
        assert not stream.whole
        assert b'"code":"engine_failed"' in stream.received
        assert b"[DONE]" not in stream.received
    for client in clients:
        assert client.ask("GET", "/ping")[0] == 500
        assert client.answer() == "engine_failed"
    served.until(lambda: served.ping()[0] == 503, 30)
    served.wait_ready()
    assert served.engine_pids() != [core]
    assert [(status, reply["choices"]) for status, reply in replies] == [(200, choices) for choices in expected]
    pool.shutdown()
    for client in one_of_each(served):
        assert client.answer() == by_name("hello").answer


@again
def test_a_killed_leader_leaves_no_engine_behind(served: ServeProcess) -> None:
    clients = one_of_each(served)
    (core,) = served.engine_pids()
    leader, _ = workers(served)
    os.kill(leader, signal.SIGKILL)
    served.until(lambda: core not in session_members(served.process.pid), 5)
    for client in clients:
        try:
            assert client.ask("GET", "/ping")[0] == 500
        except (OSError, http.client.HTTPException):
            continue  # it has ended already, as it should
    served.wait_ready()
    for client in one_of_each(served):
        assert client.answer() == by_name("hello").answer


def test_sigterm_lets_the_streams_of_all_finish_and_a_dead_engine_ends_those_of_all(served: ServeProcess) -> None:
    clients = one_of_each(served)
    streams, longer = on_both(served, 2, 150), on_both(served, 2, 900)
    (core,) = served.engine_pids()
    served.process.send_signal(signal.SIGTERM)
    served.until(lambda: served.ping()[0] == 503, 5)
    assert [stream.whole for stream in streams] == [True] * 4
    for client in clients:
        assert client.answer() == "draining"
    assert not any(b'"finish_reason":"length"' in stream.received for stream in longer)
    os.kill(core, signal.SIGKILL)
    for stream in longer:
        assert not stream.whole
        assert b'"code":"engine_failed"' in stream.received
    assert served.process.wait(30) == 0
    assert session_members(served.process.pid) == []
    assert not {file.name for file in SHARED_MEMORY.glob("endpoint-*")} - EARLIER, "a directory is left"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"SAGEMAKER_MODEL_SERVER_WORKERS": "0"}, "from 1 to 64"),
        ({"SAGEMAKER_MODEL_SERVER_WORKERS": "2", "ENDPOINT_ENGINE": "none"}, "ENDPOINT_ENGINE=none"),
    ],
)
def test_what_cannot_be_names_the_setting(environment: dict[str, str], why: str, tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, environment)
    assert process.process.wait(15) == 2
    assert "SAGEMAKER_MODEL_SERVER_WORKERS" in process.log
    assert why in process.log
