"""A log router that dies ends nothing, and no core of an engine outlives its server, whatever has ended that."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess, session_members

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_without_a_log_each_process_may_be_killed_and_nothing_outlives_the_last(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    settings = {"SAGEMAKER_BASE_DIR": str(tmp_path), "ENDPOINT_PRELOAD_AFTER": "0"}
    served = ServeProcess(tmp_path, settings, pipe=True)
    try:
        served.wait_port()
        assert served.process.stdout is not None
        served.process.stdout.close()  # the log router has died
        for kill in ("core", "serving process", "master"):
            served.wait_ready()
            assert served.client.post("/invocations", json={"prompt": "a", "max_tokens": 2}).status_code == 200
            (core,) = served.engine_pids()
            serving = psutil.Process(core).parent()
            assert serving is not None
            before = [psutil.Process(core), serving]
            served.process.kill() if kill == "master" else before[kill != "core"].kill()
            assert not psutil.wait_procs(before, timeout=60)[1], f"outlived the {kill}"
        served.process.wait()
        deadline = time.monotonic() + 60
        while session_members(served.process.pid):
            assert time.monotonic() < deadline, "a process outlived the master"
            time.sleep(0.05)
    finally:
        served.kill_all_processes()
        served.client.close()
