"""The engine dies again and again, of one body and of kills at random moments. Every honest request is answered.

KILLS=50 kills it more often.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import sample_model
from tests.endpoint.killing_prompt import KILLING_PROMPT
from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import is_016

KILLS = int(os.environ.get("KILLS", "2"))
CLIENTS = 16
WITHIN = 600.0
pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200 + 60 * KILLS),
    pytest.mark.skipif(not is_016(), reason="the worker with a fault is written for vLLM 0.16.0"),
]


class Client:
    """Sends requests one after the other, each until it is answered, as a client that tries again does."""

    def __init__(self, served: ServeProcess, number: int, stop: threading.Event) -> None:
        self._http = httpx.Client(base_url=served.url, timeout=WITHIN, trust_env=False)
        self._draw = random.Random(number)
        self._number, self._stop = number, stop
        self.seen: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        place = 0
        while not self._stop.is_set():
            place += 1
            body = {
                "prompt": f"Question {self._number}.{place}: what is a lease?",
                "max_tokens": self._draw.choice((4, 60)),
                "ignore_eos": True,
                "stream": self._draw.random() < 0.5,
            }
            began = time.monotonic()
            while not self._answered(body):
                assert time.monotonic() - began < WITHIN, f"not answered: {body}, {self.seen}"
                time.sleep(0.05)
        return self.seen

    def _answered(self, body: dict[str, Any]) -> bool:
        try:
            reply = self._http.post("/v1/completions", json=body)
        except httpx.RemoteProtocolError:  # a stream that had begun ends without its end mark
            self.seen["broken stream"] += 1
            assert body["stream"]
            return False
        except httpx.NetworkError:  # the request came on a connection that a process had kept open, at its end
            self.seen["closed connection"] += 1
            return False
        self.seen[str(reply.status_code)] += 1
        assert reply.status_code in (200, 503), reply.text
        return reply.status_code == 200


def test_every_honest_request_is_answered_and_the_container_lives(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    served = ServeProcess(
        tmp_path,
        {
            "SAGEMAKER_BASE_DIR": str(tmp_path),
            "ENDPOINT_LOG_FORMAT": "json",
            "ENDPOINT_ENGINE_RESTARTS": str(2 * KILLS),
            "ENDPOINT_PRELOAD_AFTER": "0.5",
            "ENDPOINT_DEADLINE": str(WITHIN),
            "ENDPOINT_STREAM_DEADLINE": str(WITHIN),
            "SM_VLLM_WORKER_EXTENSION_CLS": "tests.endpoint.killing_worker.KillingWorker",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )
    stop, draw = threading.Event(), random.Random(50)
    bodies = [{"prompt": KILLING_PROMPT, "max_tokens": 1, "user": f"{number}"} for number in range(1 + KILLS // 10)]
    try:
        served.wait_port()
        served.wait_ready()
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            clients = [pool.submit(Client(served, number, stop).run) for number in range(CLIENTS)]
            try:
                for number in range(KILLS):
                    if number % 10 == 0:  # a new body that kills, which comes again until it is refused
                        refused(served, bodies[number // 10])
                    served.wait_ready()
                    time.sleep(draw.uniform(0, 2))
                    for core in served.engine_pids():
                        os.kill(core, signal.SIGKILL)
                    served.until(lambda: served.ping()[0] != 200, 60)
                served.wait_ready()
                assert refused(served, bodies[-1]) == 1 or KILLS % 10 == 0
            finally:
                stop.set()
            seen = sum((client.result(WITHIN) for client in clients), Counter[str]())
        assert seen["200"] > CLIENTS
        print(f"{KILLS} kills and {len(bodies)} bodies that kill: {dict(seen)}")
        quarantined = [json.loads(line) for line in served.log.splitlines() if '"body_quarantined"' in line]
        assert quarantined
    finally:
        served.terminate()


def has_others(served: ServeProcess, cores: list[int]) -> bool:
    return not set(served.engine_pids()) <= set(cores)


def test_an_engine_that_is_killed_as_it_starts_again_is_started_once_more(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    settings = {"SAGEMAKER_BASE_DIR": str(tmp_path), "ENDPOINT_LOG_FORMAT": "json"}
    with ServeProcess(tmp_path, settings).serving() as served:
        for _ in range(2):  # the one that serves, then the one that starts in its place
            cores = served.engine_pids()
            for core in cores:
                os.kill(core, signal.SIGKILL)
            served.until(partial(has_others, served, cores), 60)
        served.until(lambda: served.log.count('"event": "failed"') == 2, 60)
        served.wait_ready()
        assert served.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def refused(served: ServeProcess, body: dict[str, Any]) -> int:
    """Sends a body until it is refused. Returns how often."""
    for attempt in range(1, 200):
        try:
            reply = served.client.post("/v1/completions", json=body, timeout=WITHIN)
        except httpx.HTTPError:
            continue
        if reply.status_code == 400:
            assert reply.json()["error"]["code"] == "body_quarantined", reply.text
            return attempt
        assert reply.status_code == 503, reply.text
        time.sleep(0.2)
    raise AssertionError("it is never refused")
