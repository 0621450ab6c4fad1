"""A stream that runs while others begin, over the stand-in for the Neuron plugin: one prefill a step, no decode beside.

Its log of steps tells what a user of the running stream feels: without the pace it stands still for every prompt that
waits, with it for one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

import httpx
import pytest

from tests.endpoint.neuron_fleet import NXDI, Fleet
from tests.endpoint.serve_process import ServeProcess

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
BURST = 12
# Tokens of a stream, all that fit the model: the core computes ahead of its reader, who must act before the end.
LONGEST = 2000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    found = Fleet(tmp_path_factory.mktemp("pace"), NXDI, "pace")
    yield found
    found.close()


def ask(process: ServeProcess, number: int) -> httpx.Response:
    body = {"prompt": f"Question {number}: what is a lease?", "max_tokens": 60, "ignore_eos": True}
    return process.client.post("/v1/completions", json=body)


@contextmanager
def serving(fleet: Fleet, machine: str, **environment: str) -> Iterator[tuple[ServeProcess, Path]]:
    """A machine that knows by now that a reply is 60 tokens long, and its log of steps."""
    trace = fleet.directory / f"{machine}-steps"
    size = {"SM_VLLM_MAX_NUM_SEQS": "16", "SM_VLLM_MAX_MODEL_LEN": "2048"}
    process = fleet.serve(machine, "", **size, STAND_IN_TRACE=str(trace), **environment)
    try:
        process.wait_port()
        process.wait_ready()
        with ThreadPoolExecutor(BURST) as clients:
            replies = clients.map(lambda number: ask(process, number).json(), range(4 * BURST))
            assert {reply["usage"]["completion_tokens"] for reply in replies} == {60}
        yield process, trace
    finally:
        process.terminate()


@contextmanager
def long_stream(process: ServeProcess) -> Iterator[Future[list[str]]]:
    """One that has begun; its events. Its client leaves at the end of the block."""
    begun, over = threading.Event(), threading.Event()

    def read() -> list[str]:
        body = {"prompt": "A long story:", "max_tokens": LONGEST, "ignore_eos": True, "stream": True}
        events: list[str] = []
        with process.client.stream("POST", "/v1/completions", json=body) as reply, suppress(httpx.RemoteProtocolError):
            for line in reply.iter_lines():
                events.append(line)
                if len(events) == 10:
                    begun.set()
                if over.is_set():
                    break
        return events

    with ThreadPoolExecutor(1) as client:
        stream = client.submit(read)
        try:
            assert begun.wait(60)
            yield stream
        finally:
            over.set()


def standstills(process: ServeProcess, trace: Path) -> list[int]:
    """The lengths of the runs of prefills, while a stream runs and twelve requests begin at once."""
    before = len(steps(trace))
    (core,) = process.engine_pids()
    with long_stream(process) as stream, ThreadPoolExecutor(BURST) as clients:
        # The core stands still until all have come: how many it finds does not depend on the machine.
        os.kill(core, signal.SIGSTOP)
        begun = [clients.submit(ask, process, number) for number in range(BURST)]
        process.until(lambda: process.metric("endpoint_requests_in_engine") == BURST + 1, 20)
        os.kill(core, signal.SIGCONT)
        assert [one.result(60).status_code for one in begun] == [200] * BURST
        assert not stream.done()
    during = [step["prefill"] for step in steps(trace)[before + 1 :]]
    assert sum(during) == BURST
    return [sum(1 for _ in run) for prefills, run in groupby(during) if prefills]


def steps(trace: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in trace.read_text().splitlines()]


def test_as_they_come_a_running_stream_waits_for_all_of_them(fleet: Fleet) -> None:
    with serving(fleet, "as-they-come", ENDPOINT_PREFILL_TOKENS="0") as (process, trace):
        assert max(standstills(process, trace)) >= BURST // 3


def test_paced_it_waits_for_one_and_those_that_wait_hear_of_the_engines_end(fleet: Fleet) -> None:
    with serving(fleet, "paced") as (process, trace):
        # Each waits for the token of the one before. A core that the machine held up between that token and its next
        # step finds the next prompt there already, and prefills twice in a row.
        assert len(standstills(process, trace)) > BURST * 3 // 4
        (core,) = process.engine_pids()
        with long_stream(process) as stream, ThreadPoolExecutor(BURST) as clients:
            os.kill(core, signal.SIGSTOP)
            waiting = [clients.submit(ask, process, number) for number in range(BURST)]
            process.until(lambda: process.metric("endpoint_requests_in_engine") == BURST + 1, 20)
            os.kill(core, signal.SIGKILL)
            replies = [one.result(20) for one in waiting]
            assert any("engine_failed" in event for event in stream.result())
        assert [reply.status_code for reply in replies] == [503] * BURST
        assert {reply.json()["error"]["code"] for reply in replies} == {"engine_failed"}
