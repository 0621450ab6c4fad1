"""Builds the ``docker run`` arguments for one instance, so that an image runs as SageMaker runs it.

Sources: developer guide "Custom inference code with hosting services" (``docker run IMAGE serve``, /opt/ml/model,
SAGEMAKER_BIND_TO_PORT, SIGTERM to process 1), reference "docker container run".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

OPT_ML = Path("/opt/ml")
DATA = ("model", "additional-model-data-sources")
# The variables of the caller that the Docker client itself needs. Containers do not get them.
OF_THE_CLIENT = ("PATH", "HOME", "XDG_RUNTIME_DIR")
CLIENT_PREFIX = "DOCKER_"


@dataclass(frozen=True, slots=True)
class Docker:
    """How containers are run.

    :ivar client: the command of the Docker client.
    :ivar options: further options of ``docker run``, for example ``--shm-size=8g``.
    """

    client: tuple[str, ...] = ("docker",)
    options: tuple[str, ...] = ()

    def run(self, image: str, name: str, base: Path, environment: Path, devices: Iterable[str]) -> tuple[str, ...]:
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
            image,
            "serve",
        )

    def kill(self, name: str) -> tuple[str, ...]:
        """Returns the command that kills a container. A Docker client does not forward SIGKILL."""
        return (*self.client, "kill", name)

    def remove(self, name: str) -> tuple[str, ...]:
        return (*self.client, "rm", "--force", name)


def mount(source: Path, target: Path) -> str:
    """Returns the option for a read-only bind mount. Its fields are a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}", "readonly"])
    return line.getvalue()


def environment_file(environment: Mapping[str, str]) -> str:
    """Returns the content of an environment file.

    :raises ValueError: a value has several lines, which the file cannot express.
    """
    for name, value in environment.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"{name} has a line break, which docker's --env-file can't hold")
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def client_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in OF_THE_CLIENT or name.startswith(CLIENT_PREFIX)}


def neuron_devices(root: Path = Path("/dev")) -> list[str]:
    return sorted(str(device) for device in root.glob("neuron[0-9]*"))
