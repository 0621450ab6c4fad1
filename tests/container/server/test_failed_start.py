"""The page after a failed start, served by a process of its own, which ends in the middle of a request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

# It serves the page with one more route, which answers only after the signal has arrived.
PROGRAM = """
import os, sys, threading
from container.server import failed_start
from container.server.acceptor_process import AcceptorProcess
from container.server.acceptor_process import listen
from handler.config.loading.config_loader import load

config = load(os.environ)
acceptor = AcceptorProcess(listen(config), config.stall)
acceptor.start()
port = acceptor.listener.getsockname()[1]
signalled = threading.Event()
make_app, wait = failed_start.create_app, failed_start.signal.sigwait

def create_app(service):
    app = make_app(service)

    def slow():
        print("asked", flush=True)
        signalled.wait()
        return "an answer"

    app.add_url_rule("/slow", view_func=slow)
    return app

def sigwait(signals):
    print(port, flush=True)
    wait(signals)
    threading.Timer(%s, signalled.set).start()

failed_start.create_app, failed_start.signal.sigwait = create_app, sigwait
failed_start.serve_page(config, acceptor, "the reason")
acceptor.stop()
"""


@pytest.mark.parametrize(("seconds", "answered"), [(0.2, True), (4, False)])
def test_a_request_that_runs_when_the_page_ends_is_answered_or_ended_in_silence(
    tmp_path: Path, seconds: float, answered: bool
) -> None:
    environ = {**os.environ, "ENDPOINT_MODEL": str(tmp_path), "ENDPOINT_PAGE": "true", "SAGEMAKER_BIND_TO_PORT": "0"}
    command = [sys.executable, "-c", PROGRAM % seconds]
    with (
        subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as served,
        ThreadPoolExecutor(1) as askers,
    ):
        assert served.stdout is not None
        url = f"http://127.0.0.1:{int(served.stdout.readline())}/slow"
        reply = askers.submit(httpx.get, url, timeout=30, trust_env=False)
        assert served.stdout.readline() == "asked\n"
        served.send_signal(signal.SIGTERM)
        _, log = served.communicate(timeout=30)
        error = reply.exception(timeout=30)
    assert served.returncode == 0
    assert isinstance(error, httpx.TransportError) is not answered
    assert "Traceback" not in log
    assert "destroyed" not in log
