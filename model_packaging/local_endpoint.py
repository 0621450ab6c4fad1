"""`--local`: uses SageMaker and S3 on this machine, as `neuron-endpoint local up` started them.

It only sets addresses and credentials for boto3. The code that calls SageMaker is the same.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.deployment.container_log import LogLine, as_text, time_of

if TYPE_CHECKING:
    from local_sagemaker.state_directory import StateDirectory


class NothingUp(click.ClickException):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no SageMaker is running on this machine. Start it: neuron-endpoint local up")


def use_local(environ: MutableMapping[str, str] = os.environ) -> None:
    """Directs this process's AWS clients to this machine. Services that do not run here are not reachable.

    :raises NothingUp: no local SageMaker is running.
    """
    from local_sagemaker.service_client import OF_MOTO, alive

    state = _state()
    running = alive(state)
    if running is None:
        raise NothingUp
    settings = state.settings()
    for name in [name for name in environ if name.startswith(("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN"))]:
        del environ[name]
    environ.update(
        {
            "AWS_ENDPOINT_URL": running.url,
            **{f"AWS_ENDPOINT_URL_{name}": running.s3_url for name in OF_MOTO},
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": settings.region,
            "AWS_REGION": settings.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )


class LocalLog:
    """The logs of an endpoint's containers on this machine: files instead of CloudWatch. See `ContainerLog`.

    :param directory: the directory of all logs. The default is that of the running local SageMaker.
    """

    def __init__(self, endpoint: str, directory: Path | None = None) -> None:
        self._directory = (directory or _state().path / "logs") / endpoint
        self._start = 0
        self._read: dict[Path, int] = {}

    def since(self, moment: int) -> None:
        self._start = moment

    def new(self) -> list[LogLine]:
        lines = []
        for path in self._directory.glob("*/*.log"):
            with path.open("rb") as file:
                changed = int(os.fstat(file.fileno()).st_mtime * 1000)
                if changed < self._start:
                    continue
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + (len(whole) + 1 if whole else 0)
            stream = f"{path.parent.name}/{path.stem}"
            written = whole.decode(errors="replace").splitlines()
            # A line without a time of its own was written between those that have one.
            at = next((time for line in written if (time := time_of(line))), changed)
            for line in written:
                at = time_of(line) or at
                lines.append(LogLine(at, stream, as_text(line)))
        return sorted(lines, key=lambda line: line.time)


def _state() -> StateDirectory:
    from local_sagemaker.service_client import state_directory
    from local_sagemaker.state_directory import ENVIRONMENT

    directory = os.environ.get(ENVIRONMENT)
    return state_directory(Path(directory) if directory else None)
