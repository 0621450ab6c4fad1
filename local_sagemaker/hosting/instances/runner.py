"""Runs an image on this machine: as a plain process, or as a Docker container, as SageMaker runs it.

Sources: developer guide "Custom inference code with hosting services" (``docker run IMAGE serve``, /opt/ml/model,
SAGEMAKER_BIND_TO_PORT, SIGTERM to process 1), reference "docker container run".
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

OPT_ML = Path("/opt/ml")
DATA = ("model", "additional-model-data-sources")
# The variables of the caller that the Docker client itself needs. Containers do not get them.
OF_THE_CLIENT = ("PATH", "HOME", "XDG_RUNTIME_DIR")
CLIENT_PREFIX = "DOCKER_"

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AsProcess:
    """Runs an image as a process.

    :ivar environment: the variables of the image, of SageMaker and of the model.
    """

    command: Command
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> tuple[Command, Mapping[str, str]]:
        """Returns the command that starts an instance, and its environment. ``scratch`` replaces the container's /tmp.

        :param base: the directory for /opt/ml.
        :param scratch: an empty directory for this instance.
        """
        return self.command, {
            "TMPDIR": str(scratch),
            "ENDPOINT_SCRATCH": str(scratch / "neuron-endpoint"),
            "ENDPOINT_LOG_FORMAT": "json",  # as on SageMaker: each line has its time
            **self.environment,
            "SAGEMAKER_BASE_DIR": str(base),
            "SAGEMAKER_BIND_TO_PORT": str(port),
        }

    def kill(self, name: str) -> Command:
        """Returns nothing: killing the process is enough."""
        return ()

    remove = kill


@dataclass(frozen=True, slots=True)
class InDocker:
    """Runs an image as a Docker container. Tested with podman and with a stand-in, not with a Docker daemon.

    :ivar client: the command of the Docker client.
    :ivar options: further options of ``docker run``, for example ``--shm-size=8g``.
    :ivar environment: the variables of SageMaker and of the model. The image has its own.
    """

    client: Command
    options: Command
    image: str
    environment: Mapping[str, str]

    def begin(self, name: str, base: Path, scratch: Path, port: int) -> tuple[Command, Mapping[str, str]]:
        """Returns the command that starts an instance, and the environment of Docker's client.

        :raises OSError: the environment file cannot be written.
        """
        file = scratch / "environment"
        content = environment_file({**self.environment, "SAGEMAKER_BIND_TO_PORT": str(port)})
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(content)
        own = {key: value for key, value in os.environ.items() if key in OF_THE_CLIENT or key.startswith(CLIENT_PREFIX)}
        return self.run(_name(name), base, file, neuron_devices()), own

    def run(self, name: str, base: Path, environment: Path, devices: Iterable[str]) -> Command:
        """Returns the command that runs one container.

        :param base: the directory on this machine for /opt/ml. Adapters and target models are beside it.
        :param environment: an environment file, as `environment_file` writes it.
        """
        mounts = [(base / part, OPT_ML / part) for part in DATA if (base / part).is_dir()]
        # Models that are loaded later are named by their path on this machine.
        mounts.append((base.parent, base.parent))
        return (
            *self.client,
            "run",
            "--rm",
            *("--name", name),
            *("--network", "host"),  # It listens on SAGEMAKER_BIND_TO_PORT, and reaches this machine's S3.
            *("--env-file", str(environment)),
            *(word for source, target in mounts for word in ("--mount", mount(source, target))),
            *(word for device in devices for word in ("--device", device)),
            *self.options,
            self.image,
            "serve",
        )

    def kill(self, name: str) -> Command:
        """Returns the command that kills a container. A Docker client does not forward SIGKILL."""
        return (*self.client, "kill", _name(name))

    def remove(self, name: str) -> Command:
        """Returns the command that removes a container which a killed service left."""
        return (*self.client, "rm", "--force", _name(name))


Runner = AsProcess | InDocker


def _name(instance: str) -> str:
    return f"local-sagemaker-{instance}"


def mount(source: Path, target: Path) -> str:
    """Returns the option for a read-only bind mount. Its fields are a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}", "readonly"])
    return line.getvalue()


def environment_file(environment: Mapping[str, str]) -> str:
    """Returns the content of an environment file.

    :raises OSError: a value has several lines, which the file cannot express.
    """
    for name, value in environment.items():
        if "\n" in value or "\r" in value:
            raise OSError(f"{name} has a line break, which docker's --env-file can't hold")
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def neuron_devices(root: Path = Path("/dev")) -> list[str]:
    return sorted(str(device) for device in root.glob("neuron[0-9]*"))
