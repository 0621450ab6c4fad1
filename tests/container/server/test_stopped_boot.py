"""SIGTERM while `serve` or a serving process boots: each ends by itself, and the container with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.handler.waiting import WITHIN

# Its drain is far longer than the test: gunicorn kills no process in that time. At one moment of the boot the master
# is told to end, and the boot goes on once the signal has come on to the serving process, with the handler of then.
PROGRAM = """
import os, signal, sys, threading, time
from container.server import gunicorn_server, worker
from container.server.acceptor_process import AcceptorProcess, listen
from container.service import Service
from handler.config.endpoint_config import EndpointConfig

moment = sys.argv[1]

def stop(at):
    if at != moment:
        return
    print(f"stopped before {at}", flush=True)
    arrived, handler = [], signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, frame: (arrived.append(number), handler(number, frame)))
    os.kill(os.getppid(), signal.SIGTERM)
    while not arrived:
        time.sleep(0.01)

class Server(gunicorn_server.GunicornServer):
    def _post_fork(self, arbiter, worker):
        stop("post_fork")
        super()._post_fork(arbiter, worker)

    def load(self):
        stop("load")
        return super().load()

def make_service():
    stop("make_service")
    return Service.of(config)

worker.start = lambda service: None
config = EndpointConfig(model="scripted", port=0, drain=600.0, neuron_monitor=False)
listener = listen(config)
Server(config, make_service, AcceptorProcess(listener, config.stall)).run()
"""


@pytest.mark.parametrize("moment", ["post_fork", "make_service", "load"])
def test_a_serving_process_that_is_told_to_end_while_it_boots_does(moment: str) -> None:
    command = [sys.executable, "-c", PROGRAM, moment]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as served:
        try:
            output, log = served.communicate(timeout=WITHIN)
        finally:
            served.kill()
    assert (output, served.returncode) == (f"stopped before {moment}\n", 0)
    assert "Traceback" not in log


def test_serve_ends_with_status_0_before_there_is_a_server() -> None:
    program = """
import os, signal
from container import serve
from handler.config.loading import config_loader
config_loader.load = lambda environ: os.kill(os.getpid(), signal.SIGTERM)
serve.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=WITHIN, check=False, cwd=Path(__file__).parents[3]
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
