"""Runs an image on this machine: as a plain process, or as a Docker container."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_sagemaker.hosting.instances.docker import Docker, client_environment, environment_file, neuron_devices


@dataclass(frozen=True, slots=True)
class Begin:
    """A command and its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Runner(ABC):
    @abstractmethod
    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        """Returns the command that starts an instance.

        :param name: the instance's name.
        :param base: the directory for /opt/ml.
        :param scratch: an empty directory for this instance.
        :raises OSError: a file cannot be written.
        """

    def kill(self, name: str) -> tuple[str, ...]:
        """Returns the command that kills it. Empty if killing its process is enough."""
        return ()

    def remove(self, name: str) -> tuple[str, ...]:
        """Returns the command that removes an instance which a killed service left. Empty if none is needed."""
        return ()


@dataclass(frozen=True, slots=True)
class AsProcess(Runner):
    """Runs an image as a process.

    :ivar environment: the variables of the image, of SageMaker and of the model.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        """Returns the command. ``scratch`` replaces the container's /tmp."""
        environment = {
            "TMPDIR": str(scratch),
            "ENDPOINT_SCRATCH": str(scratch / "neuron-endpoint"),
            "ENDPOINT_LOG_FORMAT": "json",  # as on SageMaker: each line has its time
            **self.environment,
            "SAGEMAKER_BASE_DIR": str(base),
            "SAGEMAKER_BIND_TO_PORT": str(port),
        }
        return Begin(self.command, environment)


@dataclass(frozen=True, slots=True)
class InDocker(Runner):
    """Runs an image as a Docker container. Tested with podman and with a stand-in, not with a Docker daemon.

    :ivar environment: the variables of SageMaker and of the model. The image has its own.
    """

    docker: Docker
    image: str
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        file = scratch / "environment"
        try:
            content = environment_file({**self.environment, "SAGEMAKER_BIND_TO_PORT": str(port)})
        except ValueError as error:
            raise OSError(str(error)) from error
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(content)
        command = self.docker.run(self.image, _name(name), base, file, neuron_devices())
        return Begin(command, client_environment(os.environ))

    def kill(self, name: str) -> tuple[str, ...]:
        return self.docker.kill(_name(name))

    def remove(self, name: str) -> tuple[str, ...]:
        return self.docker.remove(_name(name))


def _name(instance: str) -> str:
    return f"local-sagemaker-{instance}"
