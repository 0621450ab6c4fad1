"""The settings of container processes on this machine: addresses, times, images, environment."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local_sagemaker.hosting.instances.runner import Command

# The variables that an image usually sets are taken from this machine. Containers get no others of the caller, as in
# the cloud.
OF_THIS_MACHINE = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HUB_OFFLINE")
OF_THE_CPU_ENGINE = ("VLLM_CPU_", "OMP_")


@dataclass(frozen=True, slots=True)
class ContainerAddress:
    """The address of the container's process."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> ContainerAddress:
        """Parses ``http://HOST:PORT``. SageMaker uses plain HTTP and fixed paths, so a URL has nothing else."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} is not of the form http://HOST:PORT")
        return cls(parts.hostname, parts.port or 80)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostTiming:
    """SageMaker's times. ``speed`` shortens waits and time limits that are minutes in the cloud.

    Source: developer guide "Custom inference code with hosting services": pings of 2 s, 8 minutes to the first
    success unless configured, SIGKILL 30 s after SIGTERM. "Invoke a multi-model endpoint": ModelNotReadyException after
    60 s, and loads of up to 360 s.
    """

    speed: float = 1.0
    ping_every: float = 5.0
    ping_seconds: float = 2.0
    failed_pings: int = 3
    startup_seconds: float = 480.0
    download_seconds: float = 3600.0
    kill_after: float = 30.0
    starting_ping_every: float = 0.25
    target_model_patience: float = 60.0
    target_model_load: float = 360.0

    def scaled(self, seconds: float) -> float:
        return seconds / self.speed


def parse_images(entries: tuple[str, ...]) -> dict[str, Command]:
    """Parses ``IMAGE=COMMAND`` entries.

    :raises ValueError: an entry has another form.
    """
    commands = {}
    for entry in entries:
        image, equals, command = entry.partition("=")
        words = tuple(shlex.split(command))
        if not equals or not words:
            raise ValueError(f"{entry!r} is not of the form IMAGE=COMMAND")
        commands[image] = words
    return commands


def default_command() -> Command:
    """Returns the command of this project's container: ``serve`` beside the interpreter, or the first on the path."""
    beside = Path(sys.executable).with_name("serve")
    return (str(beside) if beside.exists() else shutil.which("serve") or "serve",)


def image_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name in OF_THIS_MACHINE or name.startswith(OF_THE_CPU_ENGINE)
    }


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of container processes.

    :ivar images: commands by prefix of an image's name. The longest matching prefix counts.
    :ivar environment: the variables of this machine that replace an image's ENV.
    :ivar container_environment: variables for every container. The model's own variables override them.
    :ivar docker: the Docker client, which runs images that have no command. None runs this project's container as a
        process instead.
    """

    directory: Path
    s3_url: str
    region: str
    account: str
    images: Mapping[str, Command]
    timing: HostTiming
    environment: Mapping[str, str]
    container_environment: Mapping[str, str]
    docker: Command | None
    docker_options: Command

    def command(self, image: str) -> Command | None:
        fitting = [prefix for prefix in self.images if image.startswith(prefix)]
        return self.images[max(fitting, key=len)] if fitting else None

    @property
    def pids(self) -> Path:
        """The directory that has a file for each container's process."""
        return self.directory / "pids"
