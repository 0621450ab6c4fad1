"""Images in Docker: the arguments of its client, seen by a stand-in for it. No Docker daemon takes part."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from local_sagemaker.hosting.instances.runner import InDocker, environment_file, mount, neuron_devices
from tests.local_sagemaker.local_service import QUICK, Cloud, LocalService, archive, gone, until
from tests.local_sagemaker.test_endpoint_start import ask, started

STAND_IN = Path(__file__).with_name("stand_in_docker.py")


class Machine(Cloud):
    """A service that runs images by the stand-in."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.kept = directory / "docker"
        self.kept.mkdir()
        client = shlex.join([sys.executable, str(STAND_IN), str(self.kept)])
        stub = QUICK[:2]  # The image "stub" is Docker's to run.
        quick = [word for word in QUICK if word not in stub]
        super().__init__(
            LocalService(directory / "state", *quick, "--containers", "docker", "--docker", client, *options)
        )

    def commands(self, verb: str) -> list[list[str]]:
        lines = (self.kept / "commands.jsonl").read_text().splitlines()
        return [words for words in map(json.loads, lines) if words[0] == verb]

    def containers(self) -> list[str]:
        return [file.name for file in self.kept.iterdir() if file.name.startswith("local-") and not file.suffix]


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("docker, a"), "--docker-option=--shm-size=8g", "--env", "GIVEN=1")
    yield machine
    machine.service.down()


def test_a_container_is_run_as_sagemaker_runs_it(docker: Machine) -> None:
    docker.s3.put_object(Bucket="models", Key="d.tar.gz", Body=archive({"config.json": b"{}"}))
    docker.s3.put_object(Bucket="models", Key="more/draft.bin", Body=b"d")
    source = {"S3Uri": "s3://models/more/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {
        "ModelDataUrl": "s3://models/d.tar.gz",
        "AdditionalModelDataSources": [{"ChannelName": "draft", "S3DataSource": source}],
        "Environment": {"OF_THE_MODEL": "größe = 1", "PATH_OF": "$HOME"},
    }
    assert started(docker, "inside", container)["EndpointStatus"] == "InService"
    seen = ask(docker, "inside", "environment")
    assert seen["files"] == {"config.json": "{}"}
    environment = seen["environment"]
    assert (environment["OF_THE_MODEL"], environment["PATH_OF"], environment["GIVEN"]) == ("größe = 1", "$HOME", "1")
    assert environment["AWS_ENDPOINT_URL_S3"] == docker.service.exports["AWS_ENDPOINT_URL_S3"]
    (instance,) = docker.instances("inside")
    assert environment["SAGEMAKER_BIND_TO_PORT"] == instance["address"].rpartition(":")[2]
    assert not {"PYTHONPATH", "HOME", "TMPDIR"} & environment.keys()  # an image brings its own

    (command,) = docker.commands("run")
    name = f"local-sagemaker-{instance['instance']}"
    assert command[:6] == ["run", "--rm", "--name", name, "--network", "host"]
    assert command[-3:] == ["--shm-size=8g", "stub", "serve"]
    targets = [word.partition("target=")[2] for word in command if "type=bind" in word]
    assert [target.partition(",")[0].rstrip('"') for target in targets[:2]] == [
        "/opt/ml/model",
        "/opt/ml/additional-model-data-sources",
    ]
    assert "größe" not in " ".join(command)  # `ps` would show it to everybody
    assert not Path(command[command.index("--env-file") + 1]).stat().st_mode & 0o077

    # A crash is seen and fixed; the end is SIGTERM to its process 1.
    pid = ask(docker, "inside")["pid"]
    os.kill(pid, signal.SIGKILL)
    before = instance["instance"]
    until(lambda: [each["state"] for each in docker.instances("inside") if each["instance"] != before] == ["Healthy"])
    assert gone(pid)
    pid = ask(docker, "inside")["pid"]
    docker.delete("inside")
    assert gone(pid)
    assert docker.commands("kill") == []
    assert docker.containers() == []


def test_a_container_that_ignores_sigterm_is_killed_by_its_name(docker: Machine) -> None:
    started(docker, "stubborn", STUB_IGNORES_SIGTERM="1")
    pid = ask(docker, "stubborn")["pid"]
    (instance,) = docker.instances("stubborn")
    docker.delete("stubborn")
    assert gone(pid)
    assert ["kill", f"local-sagemaker-{instance['instance']}"] in docker.commands("kill")


def test_an_adapter_is_found_by_its_path(docker: Machine) -> None:
    """It is fetched when its container runs already: the mount of the endpoint's directory has it."""
    started(docker, "late")
    (command,) = [words for words in docker.commands("run") if "late" in " ".join(words)]
    directory = docker.service.state / "instances" / "late"
    assert mount(directory, directory) in command
    docker.delete("late")


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"Image": "other"}, "its process ended with status 125"),
        ({"Environment": {"TWO": "lines\nof"}}, "TWO has a line break, which docker's --env-file can't hold"),
    ],
)
def test_what_docker_refuses_is_a_failure_reason(docker: Machine, container: dict[str, object], said: str) -> None:
    described = started(docker, f"refused-{len(said)}", container)
    assert described["EndpointStatus"] == "Failed"
    assert said in described["FailureReason"]


def test_a_killed_service_takes_its_containers_along_by_their_names(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    try:
        assert started(machine, "along")["EndpointStatus"] == "InService"
        (instance,) = machine.instances("along")
        pid = ask(machine, "along")["pid"]
        service = json.loads(machine.service.command("status", "--json").stdout)["pid"]
        running = [service, *(child.pid for child in psutil.Process(service).children(recursive=True))]
        os.kill(service, signal.SIGKILL)
        until(lambda: gone(pid) and all(gone(each) for each in running))
        assert ["rm", "--force", f"local-sagemaker-{instance['instance']}"] in machine.commands("rm")
        assert machine.containers() == []
        assert len(machine.commands("run")) == 1  # It was not replaced.
    finally:
        machine.service.command("down")


def test_a_client_that_is_not_there_is_said(tmp_path: Path) -> None:
    service = LocalService(tmp_path, "--containers", "docker", "--docker", "/no/docker")
    try:
        described = started(Cloud(service), "e", {"Image": "any:1"})
        assert described["EndpointStatus"] == "Failed"
        assert described["FailureReason"] == "The command /no/docker of the image any:1 does not exist."
    finally:
        service.down()


def test_the_arguments_of_a_run() -> None:
    image = InDocker(("docker",), ("--shm-size=8g",), "repository/image:tag", {})
    command = image.run("name", Path("/state/a,b"), Path("/env"), ["/dev/neuron0", "/dev/neuron1"])
    assert command == (
        *("docker", "run", "--rm", "--name", "name", "--network", "host", "--env-file", "/env"),
        *("--mount", "type=bind,source=/state,target=/state,readonly"),
        *("--device", "/dev/neuron0", "--device", "/dev/neuron1"),
        *("--shm-size=8g", "repository/image:tag", "serve"),
    )
    assert mount(Path("/a,b"), Path("/c")) == 'type=bind,"source=/a,b",target=/c,readonly'
    assert environment_file({"A": "1 2", "B": ""}) == "A=1 2\nB=\n"
    with pytest.raises(OSError, match="A has a line break"):
        environment_file({"A": "1\n2"})


def test_the_chips_of_this_machine_are_devices(tmp_path: Path) -> None:
    for name in ("neuron1", "neuron0", "neuron_other", "null"):
        (tmp_path / name).touch()
    assert neuron_devices(tmp_path) == [f"{tmp_path}/neuron0", f"{tmp_path}/neuron1"]
