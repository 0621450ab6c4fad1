"""What stands for an image on this machine: a process of its own, or a container of Docker's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from local_sagemaker.hosting.instances.docker import HOST, Docker, client_environment, environment_file, neuron_devices


@dataclass(frozen=True, slots=True)
class Begin:
    """A command, and the environment it is started with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Runner(Protocol):
    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        """:param name: the instance's.
        :param base: the container's /opt/ml.
        :param scratch: an empty directory of this instance alone.
        :raises OSError: it can't be.
        """

    def kill(self, name: str) -> tuple[str, ...]:
        """The command that ends it at once; empty where the end of its process does."""

    def remove(self, name: str) -> tuple[str, ...]:
        """Likewise, of one that a service which was killed has left."""


@dataclass(frozen=True, slots=True)
class AsProcess:
    """:ivar environment: of the image, of SageMaker and of the model."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        """``scratch`` stands for the container's /tmp."""
        environment = {
            "TMPDIR": str(scratch),
            "ENDPOINT_SCRATCH": str(scratch / "neuron-endpoint"),
            **self.environment,
            "SAGEMAKER_BASE_DIR": str(base),
            "SAGEMAKER_BIND_TO_PORT": str(port),
        }
        return Begin(self.command, environment)

    def kill(self, name: str) -> tuple[str, ...]:
        return ()

    def remove(self, name: str) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class InDocker:
    """Never seen with a real daemon: the tests have a stand-in for the client.

    :ivar environment: of SageMaker and of the model; the image has its own.
    """

    docker: Docker
    image: str
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> Begin:
        own = {"SAGEMAKER_BIND_TO_PORT": str(port)} if self.docker.network == HOST else {}
        file = scratch / "environment"
        try:
            content = environment_file({**self.environment, **own})
        except ValueError as error:
            raise OSError(str(error)) from error
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(content)
        command = self.docker.run(self.image, _name(name), base, port, file, neuron_devices())
        return Begin(command, client_environment(os.environ))

    def kill(self, name: str) -> tuple[str, ...]:
        return self.docker.kill(_name(name))

    def remove(self, name: str) -> tuple[str, ...]:
        return self.docker.remove(_name(name))


def _name(instance: str) -> str:
    return f"local-sagemaker-{instance}"
