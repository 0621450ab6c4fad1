"""Thousands of bodies that no good client sends: no 5xx, no traceback, our error form, and an engine that goes on.

`make fuzz BODIES=100000` sends more; FUZZ_SEED chooses others. A finding names its number: `fuzz_requests.sent(seed,
number)` makes the request again.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess, session_members
from tests.fuzz.fuzz_check import FuzzClient, finding
from tests.fuzz.fuzz_requests import sent

pytestmark = pytest.mark.engine

BODIES = int(os.environ.get("FUZZ_BODIES", "2500"))
SEED = int(os.environ.get("FUZZ_SEED", "6"))
CLIENTS = 12
# What may be added after the first part; of a short run that is still caches, pools and arenas.
WARM, MOST_GROWTH = (0.5, 1.05) if BODIES >= 20_000 else (0.2, 1.15)
SHOWN = 20


def own_memory(endpoint: ServeProcess) -> dict[str, int]:
    """KiB of memory of their own of the processes that requests come to, by title and number.

    Without gunicorn's master, which imports vLLM at some time, and without the pages of files, which come and go with
    what else the machine does.
    """
    found = {}
    for pid in session_members(endpoint.process.pid):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if not title.startswith("gunicorn: master"):
            status = Path(f"/proc/{pid}/status").read_text()
            found[f"{title[:80].strip()} {pid}"] = int(status.partition("RssAnon:")[2].split()[0])
    return found


def resident(endpoint: ServeProcess) -> tuple[int, int]:
    """MiB of memory of their own: of the engine, which is the core and from vLLM 0.29 on a worker, and of all else."""
    found = [0, 0]
    for title, size in own_memory(endpoint).items():
        found[not title.startswith("VLLM::")] += size
    return found[0] >> 10, found[1] >> 10


class Run:
    """The numbers, handed out to the clients, and what they found."""

    def __init__(self, endpoint: ServeProcess) -> None:
        self._endpoint = endpoint
        self._next = iter(range(BODIES))
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.found: list[str] = []
        self.warm = (0, 0)

    def number(self) -> int | None:
        with self._lock:
            number = next(self._next, None)
        if number is not None and number == int(BODIES * WARM):
            self.warm = resident(self._endpoint)
        if number is not None and number % 5000 == 4999:
            print(number + 1, dict(self.statuses), "MiB:", resident(self._endpoint), flush=True)
        return number

    def client(self) -> None:
        client = FuzzClient(self._endpoint.port)
        while len(self.found) < 1000 and (number := self.number()) is not None:
            request = sent(SEED, number)
            try:
                status, kind, body = client.ask(request)
                wrong = finding(request, status, kind, body)
            except Exception as error:  # a reply that does not come, or cannot be read
                status, body, wrong = -1, b"", repr(error)
            with self._lock:
                self.statuses[status] += 1
                if wrong is not None:
                    self.found.append(f"{SEED}:{number}: {wrong}\n  {request.raw[:600]!r}\n  {status} {body[:400]!r}")
        client.close()


def test_streams_of_responses_beside_each_other_are_whole(endpoint: ServeProcess) -> None:
    """Found by the fuzz: vLLM's parsers and its encoding thread shared a tokenizer, and now and then broke a stream."""

    def ask(number: int) -> str:
        body = {"input": "What does /ping mean?", "max_output_tokens": 1 + number % 4, "stream": True, "temperature": 0}
        return endpoint.client.post("/invocations", json=body).text

    with ThreadPoolExecutor(CLIENTS) as pool:
        replies = list(pool.map(ask, range(400)))
    assert [reply for reply in replies if '"output_tokens"' not in reply] == []


def test_what_a_large_prompt_took_goes_back_to_the_machine(endpoint: ServeProcess) -> None:
    """Found by the fuzz: its tokens' 184 MiB were freed, and stayed. Half of them are more than what else changes."""
    _, before = resident(endpoint)
    body = {"inputs": "x" * 1_000_000, "parameters": {"truncate": 3, "max_new_tokens": 1}}
    assert endpoint.client.post("/invocations", json=body).status_code == 200
    try:
        endpoint.until(lambda: resident(endpoint)[1] < before + 92, 20)
    except AssertionError:
        raise AssertionError(f"{before} MiB before the prompt, and now, in KiB: {own_memory(endpoint)}") from None


@pytest.mark.timeout(max(300, BODIES // 10))
def test_no_body_ends_in_anything_but_an_answer_or_our_error(endpoint: ServeProcess) -> None:
    engine = endpoint.engine_pids()
    # The first grammar starts the process that tries grammars. What it holds is not growth.
    grammar = {"prompt": "a", "max_tokens": 1, "structured_outputs": {"choice": ["a", "b"]}}
    assert endpoint.client.post("/v1/completions", json=grammar).status_code == 200
    run = Run(endpoint)
    threads = [threading.Thread(target=run.client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(BODIES, "bodies:", dict(sorted(run.statuses.items())))
    assert run.found == [], "\n".join([f"{len(run.found)} findings", *run.found[:SHOWN]])
    assert run.statuses[200] > BODIES / 10
    assert run.statuses[400] > BODIES / 10
    assert endpoint.ping() == (200, "")
    assert endpoint.engine_pids() == engine
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0, 10)
    assert endpoint.metric("endpoint_requests_in_engine") == 0
    body = {"messages": [{"role": "user", "content": by_name("ping").questions[0]}], "temperature": 0}
    answer = endpoint.client.post("/invocations", json=body).json()["choices"][0]["message"]["content"]
    assert answer == by_name("ping").answer
    after = resident(endpoint)
    print(f"MiB of the core and of HTTP: {run.warm} at {WARM:.0%}, {after} at the end")
    assert all(end <= warm * MOST_GROWTH for warm, end in zip(run.warm, after, strict=True))
