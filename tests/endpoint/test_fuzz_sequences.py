"""Sequences of requests that no good client sends: each is answered, the engine goes on, and no other client waits.

`make fuzz SEQUENCES=100000 SEED=7` sends more. A finding names its seed and number: `fuzz_sequences.sequence(seed,
number)` makes the requests again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess
from tests.fuzz.fuzz_run import FuzzRun

pytestmark = pytest.mark.engine

SEQUENCES = int(os.environ.get("FUZZ_SEQUENCES", "300"))
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
SECONDS = float(os.environ.get("FUZZ_SECONDS", "inf"))
SEED = int(os.environ.get("FUZZ_SEED", "6"))


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], AbstractContextManager[ServeProcess]]:
    """Starts a server as it is shipped, with the model alone."""
    numbers = count()

    @contextmanager
    def started() -> Iterator[ServeProcess]:
        settings = {"ENDPOINT_MODEL": str(sample_model.path()), "ENDPOINT_BATCH_STORE": str(tmp_path / "batches")}
        served = ServeProcess(tmp_path / str(next(numbers)), settings)
        try:
            served.wait_port()
            served.wait_ready()
            yield served
        finally:
            served.terminate()

    return started


@pytest.mark.timeout(max(600, SEQUENCES))
def test_no_sequence_harms_another_client(start: Callable[[], AbstractContextManager[ServeProcess]]) -> None:
    with start() as served:
        engine = served.engine_pids()
        run = FuzzRun(served, start, SEED, range(FIRST, FIRST + SEQUENCES), SECONDS)
        found = run.findings()
        print(run.summary)
        assert found == [], "\n\n".join([f"{len(found)} findings", *found])
        assert run.statuses[200] > run.statuses.total() / 10
        assert run.statuses[400] > run.statuses.total() / 10
        assert served.engine_pids() == engine
        assert served.ping() == (200, "")
        served.until(lambda: served.metric("endpoint_requests_in_flight") == 0, 10)
        assert "Traceback" not in served.log
