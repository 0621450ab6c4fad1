"""A stream that runs while others begin, over the stand-in for the Neuron plugin: one prefill a step, no decode beside.

Its log of steps tells what a user of the running stream feels: without the pace it stands still for every prompt that
waits, with it for one.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest
from neuron_fleet import NXDI, Fleet

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
BURST = 12


def longest_standstill(fleet: Fleet, machine: str, **environment: str) -> int:
    """Prefills in a row, while a stream of 400 tokens runs and twelve requests begin at once."""
    trace = fleet.directory / f"{machine}-steps"
    process = fleet.serve(
        machine, "", SM_VLLM_MAX_NUM_SEQS="16", SM_VLLM_MAX_MODEL_LEN="1024", STAND_IN_TRACE=str(trace), **environment
    )
    try:
        process.wait_port()
        process.wait_ready()

        def ask(number: int) -> int:
            body = {"prompt": f"Question {number}: what is a lease?", "max_tokens": 60, "ignore_eos": True}
            tokens: int = process.client.post("/v1/completions", json=body).json()["usage"]["completion_tokens"]
            return tokens

        with ThreadPoolExecutor(BURST) as clients:
            assert set(clients.map(ask, range(4 * BURST))) == {60}  # the usual length of a reply is known by then
        before = len(steps(trace))
        begun = threading.Event()

        def long_stream() -> int:
            body = {"prompt": "A long story:", "max_tokens": 400, "ignore_eos": True, "stream": True}
            events = 0
            with process.client.stream("POST", "/v1/completions", json=body) as reply:
                for line in reply.iter_lines():
                    events += line.startswith("data: {")
                    if events == 5:
                        begun.set()
            return events

        with ThreadPoolExecutor(BURST + 1) as clients:
            stream = clients.submit(long_stream)
            assert begun.wait(60)
            assert list(clients.map(ask, range(BURST))) == [60] * BURST
            assert stream.result() > 5
        during = steps(trace)[before + 1 :]
        assert sum(step["prefill"] for step in during) == BURST
        return max(sum(1 for _ in run) for prefills, run in groupby(step["prefill"] for step in during) if prefills)
    finally:
        assert process.terminate() == 0, process.log


def steps(trace: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in trace.read_text().splitlines()]


def test_a_running_stream_waits_for_one_prefill_at_a_time(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, NXDI, "pace")
    try:
        assert longest_standstill(fleet, "as-they-come", ENDPOINT_PREFILL_TOKENS="0") >= BURST // 3
        assert longest_standstill(fleet, "paced") == 1
    finally:
        fleet.close()
