"""`--local`: SageMaker and S3 on this machine, as `neuron-endpoint local up` started them.

Only addresses and credentials are set, for boto3 to find; the code that talks to SageMaker is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import click

from model_packaging.deployment.container_log import Line


class NothingUp(click.ClickException):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no SageMaker is up on this machine. Start it: neuron-endpoint local up")


def use_local(environ: MutableMapping[str, str] = os.environ) -> None:
    """Points this process's AWS clients at this machine; those of services that are not here, at nothing.

    :raises NothingUp: there is none.
    """
    from local_sagemaker.cli import alive, state_directory
    from local_sagemaker.state import ENVIRONMENT

    given = environ.get(ENVIRONMENT)
    state = state_directory(Path(given) if given else None)
    running = alive(state)
    if running is None:
        raise NothingUp
    settings = state.settings()
    for name in [name for name in environ if name.startswith(("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN"))]:
        del environ[name]
    environ.update(
        {
            "AWS_ENDPOINT_URL": running.url,
            "AWS_ENDPOINT_URL_S3": running.s3_url,
            "AWS_ACCESS_KEY_ID": settings.access_key or "local",
            "AWS_SECRET_ACCESS_KEY": settings.secret_key or "local",
            "AWS_DEFAULT_REGION": settings.region,
            "AWS_REGION": settings.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )


class LocalLog:
    """The logs of an endpoint's containers on this machine: files, where AWS has CloudWatch. See `ContainerLog`."""

    def __init__(self, endpoint: str, status: Callable[[], dict[str, Any]] | None = None) -> None:
        self._endpoint, self._status = endpoint, status or _status
        self._read: dict[str, int] = {}

    def new(self) -> list[Line]:
        lines = []
        for instance in self._status()["endpoints"].get(self._endpoint, []):
            path = Path(instance["log"])
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(str(path), 0))
                    text = file.read()
                    changed = int(os.fstat(file.fileno()).st_mtime * 1000)
            except OSError:
                continue
            whole, _, _ = text.rpartition(b"\n")
            self._read[str(path)] = self._read.get(str(path), 0) + (len(whole) + 1 if whole else 0)
            decoded = whole.decode(errors="replace").splitlines()
            lines += [Line(changed, f"AllTraffic/{instance['instance']}", line) for line in decoded]
        return lines


def _status() -> dict[str, Any]:
    from local_sagemaker.cli import ask, state_directory
    from local_sagemaker.state import ENVIRONMENT

    given = os.environ.get(ENVIRONMENT)
    return ask(state_directory(Path(given) if given else None), "status")
