"""The state directory: the settings of `local up`, the running service, and its logs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

ENVIRONMENT = "LOCAL_SAGEMAKER_STATE"
STATUS = "/_local/status"
ENDING_SECONDS = 3.0
PROCESS, DOCKER = "process", "docker"
KEPT = ("instances", "logs", "pids", "lock", "running.json", "s3.log", "service.log", "settings.json")


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
    """The running service."""

    pid: int
    url: str
    s3_url: str


@dataclass(frozen=True, slots=True)
class StateDirectory:
    path: Path
    settings_file: Path = field(init=False)
    running_file: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings_file", self.path / "settings.json")
        object.__setattr__(self, "running_file", self.path / "running.json")

    def create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def lock(self) -> IO[str]:
        """Locks the directory for as long as the returned file is open.

        :raises StateInUse: another service runs on it. The remains of a killed service are waited for.
        """
        file = (self.path / "lock").open("w")
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
        if not self.settings_file.exists():
            return Settings()
        kept = _known(Settings, self.settings_file.read_text(encoding="utf-8"))
        entries: dict[str, Any] = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
        return Settings(**{**kept, **entries})

    def keep_settings(self, settings: Settings) -> None:
        replace_json(self.settings_file, asdict(settings))

    def running(self) -> RunningService | None:
        """Returns the service that recorded itself here. It may have been killed since."""
        try:
            return RunningService(**_known(RunningService, self.running_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def say_running(self, running: RunningService) -> None:
        replace_json(self.running_file, asdict(running))

    def say_ended(self) -> None:
        self.running_file.unlink(missing_ok=True)


def _known(kind: type[Settings] | type[RunningService], text: str) -> dict[str, Any]:
    """Returns the fields of a stored record. An older version's further fields are left out."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in json.loads(text).items() if name in names}


def replace_json(path: Path, document: object) -> None:
    """Replaces a file. It is always complete, also after a power failure, and only its owner can read it."""
    unfinished = path.with_suffix(".unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
