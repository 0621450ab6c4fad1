"""`--local`: uses SageMaker and S3 on this machine, as `neuron-endpoint local up` started them.

It only sets addresses and credentials for boto3. The code that calls SageMaker is the same. An image has this module
and no local SageMaker, which is therefore imported when it is asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from model_packaging.deployment.container_log import LogLine, as_text, time_of


class NothingUp(click.ClickException):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no SageMaker is running on this machine. Start it: neuron-endpoint local up")


def use_local() -> None:
    """Directs this process's AWS clients to this machine. Services that do not run here are not reachable.

    :raises NothingUp: no local SageMaker is running.
    """
    from local_sagemaker.state_directory import StateDirectory

    state = StateDirectory.find()
    running = state.running()
    if running is None:
        raise NothingUp
    variables = state.variables(running)
    foreign = ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")
    for name in [name for name in os.environ if name.startswith(foreign)]:
        del os.environ[name]
    os.environ.update({**variables, "AWS_ENDPOINT_URL": running.url, "AWS_EC2_METADATA_DISABLED": "true"})


class LocalLog:
    """The logs of an endpoint's containers on this machine: files instead of CloudWatch. See `ContainerLog`.

    :param directory: the directory of all logs. The default is that of the running local SageMaker.
    """

    def __init__(self, endpoint: str, directory: Path | None = None) -> None:
        if directory is None:
            from local_sagemaker.state_directory import StateDirectory

            directory = StateDirectory.find().path / "logs"
        self._directory = directory / endpoint
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
