"""Ended, killed, orphaned: that nothing is left running, and what the next `up` starts with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.local_sagemaker.local_service import COMMAND, QUICK, Cloud, LocalService, gone, run, until
from tests.local_sagemaker.test_endpoint_start import started
from tests.local_sagemaker.test_transform_jobs import start_of_a_long_answer


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    service = LocalService(tmp_path_factory.mktemp("restart"), *QUICK)
    yield service
    service.down()


@pytest.fixture(scope="module")
def own(service: LocalService) -> Cloud:
    return Cloud(service)


def processes(service: LocalService) -> list[int]:
    """The service's own, its worker's, S3's and the containers'."""
    pid = json.loads(service.command("status", "--json").stdout)["pid"]
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def test_down_and_up_is_empty_at_the_same_addresses(own: Cloud) -> None:
    service = own.service
    started(own, "gone")
    (before,) = own.instances("gone")
    service.down()
    assert gone(before["pid"])
    exports = service.exports
    service.up()
    assert service.exports == exports
    assert own.sagemaker.list_endpoints()["Endpoints"] == []
    assert own.s3.list_buckets()["Buckets"] == []


def test_a_service_that_is_killed_leaves_nothing_running(own: Cloud) -> None:
    started(own, "killed-service")
    running = processes(own.service)
    os.kill(running[0], signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in running))
    own.service.up()
    assert own.sagemaker.list_endpoints()["Endpoints"] == []


def test_a_service_ends_with_the_process_it_was_started_for(tmp_path: Path) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"{COMMAND} local up --state {tmp_path} --with-process $$ && exec sleep 600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    while "LOCAL_SAGEMAKER_STATE" not in shell.stdout.readline():
        assert shell.poll() is None
    pid = json.loads(run("status", "--json", "--state", str(tmp_path)).stdout)["pid"]
    running = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    shell.kill()
    shell.wait()
    until(lambda: all(gone(each) for each in running))
    assert run("status", "--state", str(tmp_path)).returncode == 1
    ended = run("up", "--state", str(tmp_path), "--with-process", str(shell.pid))
    assert ended.returncode == 2
    assert f"there is no process {shell.pid}" in ended.stderr


def test_down_leaves_no_container_of_a_transform_job(own: Cloud, tmp_path: Path) -> None:
    own.s3.create_bucket(Bucket="models")
    until(start_of_a_long_answer(own, "long", tmp_path).exists)
    running = processes(own.service)
    own.service.down()
    assert [pid for pid in running if not gone(pid)] == []
    own.service.up()


def test_down_leaves_no_container_of_an_endpoint_that_is_being_created(own: Cloud) -> None:
    own.model("slow-start", STUB_READY_WITH="/never")
    own.config("slow-start", {"ModelName": "slow-start"})
    own.sagemaker.create_endpoint(EndpointName="slow-start", EndpointConfigName="slow-start")
    until(lambda: bool(own.instances("slow-start")) and own.instances("slow-start")[0]["pid"] is not None)
    (starting,) = own.instances("slow-start")
    own.service.down()
    assert gone(starting["pid"])
    own.service.up()
