"""neuron-monitor beside the server: its metrics, its death, hardware errors, its end. Over a fake that prints."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from handler.neuron.hardware.neuron_monitor import NeuronMonitor
from tests.container.scripted_process import start_scripted
from tests.handler.waiting import eventually
from tests.neuron_monitor.fake_neuron_monitor import install

REPORTS = Path(__file__).parents[2] / "neuron_monitor"


class Watched:
    """The real worker over a scripted engine, with a fake neuron-monitor on its PATH."""

    def __init__(self, directory: Path, reports: str, then: str = "") -> None:
        self.started = directory / "started"
        self.process, port = start_scripted(
            "scripted_server.py",
            directory / "errors.log",
            session=True,
            PATH=f"{install(directory / 'bin').parent}:{os.environ['PATH']}",
            FAKE_MONITOR_REPORTS=str(REPORTS / f"{reports}.jsonl"),
            FAKE_MONITOR_STARTED=str(self.started),
            FAKE_MONITOR_THEN=then,
        )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)

    def metrics(self) -> str:
        return self.client.get("/metrics").text

    def starts(self) -> int:
        return self.started.stat().st_size if self.started.exists() else 0

    def end(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)


def monitors(session: int) -> list[str]:
    """Living fakes of a session."""
    rows = subprocess.run(["ps", "-ewwo", "sess,stat,args"], capture_output=True, text=True, check=True).stdout
    split = [row.split(None, 2) for row in rows.splitlines()[1:]]
    return [args for sess, stat, args in split if sess == str(session) and stat[0] != "Z" and "fake_neuron" in args]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(*arguments: str) -> Watched:
        made.append(Watched(tmp_path, *arguments))
        return made[-1]

    yield start
    for watched in made:
        watched.end()


def test_its_reports_are_in_metrics_and_it_ends_with_us(watch: Callable[..., Watched]) -> None:
    watched = watch("healthy")
    eventually(lambda: 'kind="numerical"} 2.0' in watched.metrics())
    lines = watched.metrics().splitlines()
    for line in (
        "endpoint_neuron_devices 16.0",
        "endpoint_neuron_cores 64.0",
        'endpoint_neuron_memory_used_bytes{place="neuron_device"} 1.2519788544e+10',
        'endpoint_neuron_core_utilization_ratio{core="1"} 0.5803',
        'endpoint_neuron_execution_errors_total{kind="numerical"} 2.0',
        'endpoint_neuron_ecc_events_total{device="0",kind="mem_ecc_corrected"} 6.0',
    ):
        assert line in lines
    assert watched.client.get("/ping").status_code == 200
    assert len(monitors(watched.process.pid)) == 1
    watched.end()
    assert monitors(watched.process.pid) == []


def test_a_hardware_error_turns_ping_to_500(watch: Callable[..., Watched]) -> None:
    watched = watch("uncorrected")
    eventually(lambda: watched.client.get("/ping").status_code == 500)
    body = watched.client.get("/ping").json()
    assert body["status"] == "hardware"
    assert body["reason"] == "Neuron device 1 had 1 uncorrected ECC errors in its SRAM"
    neuron = body["neuron"]
    assert (neuron["devices"], neuron["cores"], neuron["cores_in_use"]) == (16, 64, 2)
    assert neuron["utilization_percent"] == 50.0
    assert neuron["memory_used_bytes"] == 12519788544


def test_one_that_ends_is_started_again_and_nobody_suffers(watch: Callable[..., Watched]) -> None:
    watched = watch("healthy", "end")
    eventually(lambda: watched.starts() >= 2)
    assert watched.client.get("/ping").status_code == 200
    eventually(lambda: "endpoint_neuron_monitor_starts_total 2.0" in watched.metrics().splitlines())


def test_the_pause_grows_while_it_fails_and_a_stop_interrupts_it(tmp_path: Path) -> None:
    program = tmp_path / "neuron-monitor"
    program.write_text("#!/bin/sh\necho no report\n")
    program.chmod(0o755)
    monitor = NeuronMonitor(str(program), first_pause=0.05)
    monitor.start()
    eventually(lambda: monitor.starts == 3)  # after pauses of 0.1 and 0.2 s
    assert monitor.latest() is None
    assert monitor.problem() is None
    monitor.stop()  # returns: the next pause is interrupted


def test_one_that_cannot_be_started_is_no_failure_of_ours(tmp_path: Path) -> None:
    monitor = NeuronMonitor(str(tmp_path / "gone"), first_pause=0.01)
    monitor.start()
    monitor.stop()
    assert monitor.starts == 0
