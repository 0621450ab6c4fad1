"""Finds the service that runs on a state directory, and sends commands to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from handler import processes
from local_sagemaker.state_directory import COMMANDS, ENVIRONMENT, TOKEN, RunningService, Settings, StateDirectory

OF_MOTO = ("S3", "CLOUDWATCH", "SNS", "SQS")


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
    help=f"The state directory; default: ${ENVIRONMENT}, or one under ~/.local/state.",
)


def answers(running: RunningService) -> bool:
    try:
        call(running, "status", {})
    except OSError:
        return False
    return True


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


def ask(state: StateDirectory, command: str, **arguments: object) -> dict[str, Any]:
    """Sends a command to the service and returns its reply.

    :raises click.ClickException: no service is running, or it rejects the command.
    """
    from urllib.error import HTTPError

    running = required(state)
    try:
        return call(running, command, arguments)
    except HTTPError as error:
        raise click.ClickException(json.loads(error.read())["message"]) from None
    except OSError as error:
        raise click.ClickException(f"{running.url} does not answer ({error})") from error


def call(running: RunningService, command: str, arguments: dict[str, object]) -> dict[str, Any]:
    import urllib.request

    request = urllib.request.Request(
        f"{running.url}{COMMANDS}{command}", json.dumps(arguments).encode(), {TOKEN: running.token}, method="POST"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def exports(state: StateDirectory, settings: Settings, running: RunningService) -> str:
    """Returns the shell exports with which boto3 finds the service."""
    lines = {
        "AWS_ENDPOINT_URL_SAGEMAKER": running.url,
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": running.url,
        "AWS_ENDPOINT_URL_APPLICATION_AUTO_SCALING": running.url,
        **{f"AWS_ENDPOINT_URL_{name}": running.s3_url for name in OF_MOTO},
        "AWS_ACCESS_KEY_ID": settings.access_key or "local",
        "AWS_SECRET_ACCESS_KEY": settings.secret_key or "local",
        "AWS_DEFAULT_REGION": settings.region,
        ENVIRONMENT: str(state.path),
    }
    return "\n".join(f"export {name}={value}" for name, value in lines.items())
