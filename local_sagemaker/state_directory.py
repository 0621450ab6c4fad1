"""The state directory: the settings of `local up`, its logs, and the service that runs on it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from handler import processes
from handler.errors import SettingError
from local_sagemaker.hosting.instances.container_processes import started_at

ENVIRONMENT = "LOCAL_SAGEMAKER_STATE"
STATUS = "/_local/status"
ENDING_SECONDS = 3.0
PROCESS, DOCKER = "process", "docker"
SETTINGS, RUNNING, LOCK = "settings.json", "running.json", "lock"
KEPT = ("instances", "logs", "pids", LOCK, RUNNING, "s3.log", "service.log", SETTINGS)
LOOPBACK = "127.0.0.1"
OF_MOTO = ("S3", "CLOUDWATCH", "APPLICATION_AUTO_SCALING")


Kept = TypeVar("Kept")


class StateInUse(Exception):
    """Another service runs on the directory."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `local up`. A port of 0 is replaced by a free one at the first start, which is then kept.

    :ivar images: ``IMAGE=COMMAND`` entries.
    :ivar environment: ``NAME=VALUE`` entries for every container, like an image's ENV.
    :ivar containers: how an image without a command in ``images`` is run: as a process or a Docker container.
    :ivar docker: the command of the Docker client.
    :ivar docker_options: further options of ``docker run``.
    """

    port: int = 0
    s3_port: int = 0
    region: str = "us-east-1"
    account: str = "123456789012"
    images: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    cut_parts: str | None = "random"
    speed: float = 1.0
    ping_every: float = 5.0
    regular_seconds: float = 60.0
    stream_seconds: float = 480.0
    kill_after: float = 30.0
    containers: str = PROCESS
    docker: str = "docker"
    docker_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningService:
    """The running service.

    :ivar started: when its process started. After a restart of the machine, ``pid`` may be another process's.
    """

    pid: int
    started: str
    url: str
    s3_url: str

    def instances(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the instances of each endpoint.

        :raises OSError: the service does not answer.
        """
        import urllib.request

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(f"{self.url}{STATUS}", method="POST"), timeout=10) as reply:
            endpoints: dict[str, list[dict[str, Any]]] = json.load(reply)
        return endpoints


@dataclass(frozen=True, slots=True)
class StateDirectory:
    path: Path

    @classmethod
    def find(cls, path: Path | None = None) -> StateDirectory:
        """Returns the directory at a path; by default the one of the environment, or one in the home directory."""
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        default = os.environ.get(ENVIRONMENT) or home / "neuron-endpoint" / "local-sagemaker"
        return cls(Path(path or default).absolute())

    def claim(self) -> None:
        """Makes the directory this service's own.

        :raises SettingError: it has files of these names, and no service has made them.
        """
        there = [name for name in KEPT if (self.path / name).exists()]
        if there and LOCK not in there:
            problem = f"{self.path} has {', '.join(there)}, which no local SageMaker has made"
            raise SettingError("--state", problem, "Name another directory.")
        (self.path / LOCK).touch()

    def lock(self) -> IO[str]:
        """Locks the directory for as long as the returned file is open.

        :raises StateInUse: another service runs on it. The remains of a killed service are waited for.
        """
        file = (self.path / LOCK).open("w")
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.close()
                    raise StateInUse(f"{self.path} is in use by another local SageMaker") from None
                time.sleep(0.05)

    def purge(self) -> None:
        """Deletes what the service keeps here, and nothing else: the directory may be anyone's."""
        for place in map(self.path.joinpath, KEPT):
            if place.is_dir():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)

    def settings(self) -> Settings:
        """Returns the settings. An older version's further ones are left out.

        :raises SettingError: their file cannot be read.
        """
        return self._read(SETTINGS, Settings) or Settings()

    def keep_settings(self, settings: Settings) -> None:
        self._replace(SETTINGS, settings)

    def running(self) -> RunningService | None:
        """Returns the service that runs on this directory.

        :raises SettingError: its file cannot be read.
        """
        service = self._read(RUNNING, RunningService)
        if service is None:
            return None
        same = processes.alive(service.pid) and started_at(service.pid) == service.started
        return service if same else None

    def say_running(self, running: RunningService) -> None:
        self._replace(RUNNING, running)

    def say_ended(self) -> None:
        (self.path / RUNNING).unlink(missing_ok=True)

    def variables(self, running: RunningService) -> dict[str, str]:
        """Returns the variables with which boto3 finds the service."""
        return {
            "AWS_ENDPOINT_URL_SAGEMAKER": running.url,
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": running.url,
            **{f"AWS_ENDPOINT_URL_{name}": running.s3_url for name in OF_MOTO},
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            # boto3 and the CLI read the one name, the other SDKs the other.
            "AWS_DEFAULT_REGION": self.settings().region,
            "AWS_REGION": self.settings().region,
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
            "no_proxy": _without_proxy(),
            ENVIRONMENT: str(self.path),
        }

    def _read(self, name: str, kind: type[Kept]) -> Kept | None:
        file = self.path / name
        try:
            return msgspec.json.decode(file.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise SettingError(str(file), f"cannot be read ({error})", "Delete it.") from None

    def _replace(self, name: str, document: object) -> None:
        """Replaces a file. It is always complete, also after a power failure, and only its owner can read it."""
        unfinished = (self.path / name).with_suffix(".unfinished")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(document))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path / name)


def _without_proxy() -> str:
    """Returns the hosts of ``no_proxy`` and this machine. Clients read the name in small letters before the other."""
    from urllib.request import proxy_bypass

    hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    return hosts if proxy_bypass(LOOPBACK) else ",".join(filter(None, (hosts, LOOPBACK)))
