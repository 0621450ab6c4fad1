"""Finds the service that runs on a state directory, and asks it for its instances."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from handler import processes
from local_sagemaker.state_directory import ENVIRONMENT, STATUS, RunningService, Settings, StateDirectory

OF_MOTO = ("S3", "CLOUDWATCH", "APPLICATION_AUTO_SCALING")


def state_directory(given: Path | None) -> StateDirectory:
    if given is None:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        given = home / "neuron-endpoint" / "local-sagemaker"
    return StateDirectory(given.absolute())


state_option = click.option(
    "--state",
    envvar=ENVIRONMENT,
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda _context, _parameter, given: state_directory(given),
    help=f"Use this state directory. Default: ${ENVIRONMENT}, or one under ~/.local/state.",
)


def alive(state: StateDirectory) -> RunningService | None:
    running = state.running()
    return running if running is not None and processes.alive(running.pid) else None


def required(state: StateDirectory) -> RunningService:
    """Returns the running service.

    :raises click.ClickException: none is running.
    """
    running = alive(state)
    if running is None:
        raise click.ClickException(f"nothing is up on {state.path}")
    return running


def instances(running: RunningService) -> dict[str, list[dict[str, Any]]]:
    """Returns the instances of each endpoint.

    :raises OSError: the service does not answer.
    """
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(f"{running.url}{STATUS}", method="POST"), timeout=10) as reply:
        endpoints: dict[str, list[dict[str, Any]]] = json.load(reply)
    return endpoints


def exports(state: StateDirectory, settings: Settings, running: RunningService) -> str:
    """Returns the shell exports with which boto3 finds the service."""
    lines = {
        "AWS_ENDPOINT_URL_SAGEMAKER": running.url,
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": running.url,
        **{f"AWS_ENDPOINT_URL_{name}": running.s3_url for name in OF_MOTO},
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": settings.region,
        ENVIRONMENT: str(state.path),
    }
    return "\n".join(f"export {name}={value}" for name, value in lines.items())
