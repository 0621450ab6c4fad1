"""``neuron-endpoint local``: starts and stops SageMaker and S3 on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import click

from handler import processes
from local_sagemaker.state_directory import DOCKER, ENVIRONMENT, PROCESS, RunningService, Settings, StateDirectory

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
STARTED_WITHIN = 90.0
LOG_LINES = 20
REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
PORT = click.IntRange(0, 65535)


class PositiveNumber(click.FloatRange):
    """A finite number above 0. A range alone takes `nan`."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number = float(super().convert(value, param, context))
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, context)
        return number


def _region(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not REGION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a region, such as eu-west-1.")
    return value


POSITIVE = PositiveNumber()
state_option = click.option(
    "--state",
    envvar=ENVIRONMENT,
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda _context, _parameter, path: StateDirectory.find(path),
    help=f"Use this state directory. Default: ${ENVIRONMENT}, or one under ~/.local/state.",
)


@click.group()
def local() -> None:
    """SageMaker and S3 on this machine, for plain boto3."""


@local.command()
@state_option
@click.option("--temporary", is_flag=True, help="Use a new temporary state directory.")
@click.option("--port", type=PORT, help="Listen on this port as SageMaker; 0 finds a free one.")
@click.option("--s3-port", type=PORT, help="Listen on this port as S3; 0 finds a free one.")
@click.option("--image", "images", multiple=True, metavar="IMAGE=COMMAND", help="Run an image so. Default: serve.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="Set a variable of every container.")
@click.option("--containers", type=click.Choice([PROCESS, DOCKER]), help="Run images so. Initially: process.")
@click.option("--docker", metavar="COMMAND", help="Use this Docker client. Initially: docker.")
@click.option("--docker-option", "docker_options", multiple=True, metavar="OPTION", help="Give `docker run` an option.")
@click.option("--cut-parts", metavar="BYTES|random|as-they-arrive", help="Cut streams there. Initially: at random.")
@click.option("--speed", type=POSITIVE, help="Shorten SageMaker's waits by this factor.")
@click.option("--ping-every", type=POSITIVE, help="Check the health every so many seconds.")
@click.option("--kill-after", type=POSITIVE, help="Send SIGKILL so many seconds after SIGTERM.")
@click.option("--regular-seconds", type=POSITIVE, help="Limit a whole response to so many seconds.")
@click.option("--stream-seconds", type=POSITIVE, help="Limit a streamed response to so many seconds.")
@click.option("--region", callback=_region, help="Act as this region. Initially: us-east-1.")
@click.option("--with-process", type=int, metavar="PID", help="End when this process ends; $$ is your shell.")
@click.option("--bucket", "buckets", multiple=True, help="Create this S3 bucket (repeatable).")
def up(
    state: StateDirectory, temporary: bool, with_process: int | None, buckets: tuple[str, ...], **given: Any
) -> None:
    """Start in the background and print the exports to paste. Options that are not given keep their last value."""
    if with_process is not None and not processes.alive(with_process):
        raise click.UsageError(f"there is no process {with_process}")
    for name in buckets:
        if not BUCKET.fullmatch(name):
            raise click.UsageError(f"{name!r} is no name of a bucket")
    if temporary:
        import tempfile

        state = StateDirectory(Path(tempfile.mkdtemp(prefix="local-sagemaker-")))
    state.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (running := state.running()) is not None:
        raise click.ClickException(
            f"it is already up, at {running.url} (process {running.pid}). Its exports: neuron-endpoint local env"
        )
    settings = merged(state.settings(), given)
    state.claim()
    state.keep_settings(settings)
    running = start(state, with_process)
    make_buckets(buckets, running)
    print_exports(state, running)


@local.command()
@state_option
@click.option("--purge", is_flag=True, help="Delete the logs and the settings, too.")
def down(state: StateDirectory, purge: bool) -> None:
    """Stop the service and every container. Endpoints and S3 objects are gone."""
    running = state.running() if purge else required(state)
    if running is not None:
        stop(state, running)
    if purge:
        from local_sagemaker.hosting.instances.model_data import remove

        remove(state.path / "instances")  # which is read-only
        state.purge()
    click.echo(f"Deleted from {state.path}." if purge else f"Down. Its logs are in {state.path}; --purge deletes them.")


@local.command()
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(state: StateDirectory, as_json: bool) -> None:
    """Show the endpoints and their instances. Exit status 1 if nothing is up."""
    running = required(state)
    try:
        endpoints = running.instances()
    except OSError as error:
        raise click.ClickException(f"{running.url} does not answer ({error})") from error
    if as_json:
        about = {"url": running.url, "s3_url": running.s3_url, "pid": running.pid, "endpoints": endpoints}
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"SageMaker {running.url}, S3 {running.s3_url}, process {running.pid}, state {state.path}")
    for name, running_instances in endpoints.items():
        click.echo(f"endpoint {name}")
        for each in running_instances:
            click.echo(f"  {each['instance']}  {each['state']}  {each['address']}  pid {each['pid']}  {each['log']}")


@local.command()
@state_option
def env(state: StateDirectory) -> None:
    """Print the exports to paste again."""
    print_exports(state, required(state))


def stop(state: StateDirectory, running: RunningService) -> None:
    """Stops the service and waits until it has ended.

    :raises click.ClickException: it has not ended in time.
    """
    deadline = time.monotonic() + state.settings().kill_after + 30
    os.kill(running.pid, signal.SIGTERM)
    while processes.alive(running.pid):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {running.pid} has not ended; see {state.path}/service.log")
        time.sleep(0.05)


def required(state: StateDirectory) -> RunningService:
    """Returns the running service.

    :raises click.ClickException: none is running.
    """
    running = state.running()
    if running is None:
        raise click.ClickException(f"nothing is up on {state.path}. Start it: neuron-endpoint local up")
    return running


def print_exports(state: StateDirectory, running: RunningService) -> None:
    click.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in state.variables(running).items()))


def make_buckets(names: tuple[str, ...], running: RunningService) -> None:
    if not names:
        return
    from local_sagemaker.hosting.instances.s3_access import local_client

    s3 = local_client("s3", running.s3_url, "us-east-1")
    for name in names:
        s3.create_bucket(Bucket=name)  # in us-east-1 also if it exists


def merged(settings: Settings, given: dict[str, Any]) -> Settings:
    """Returns the settings with the given options.

    :raises click.UsageError: a value is invalid.
    """
    from local_sagemaker.gateway.event_stream import parse_cut
    from local_sagemaker.hosting.instances.host_settings import parse_images

    changes = {name: value for name, value in given.items() if value not in (None, ())}
    if changes.get("cut_parts") == "as-they-arrive":
        changes["cut_parts"] = None
    settings = replace(settings, **changes)
    try:
        parse_images(settings.images)
        parse_cut(settings.cut_parts)
        if not shlex.split(settings.docker):
            raise ValueError(f"{settings.docker!r} names no Docker client")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for entry in settings.environment:
        if "=" not in entry[1:]:
            raise click.UsageError(f"{entry!r} is not of the form NAME=VALUE")
    return settings


def start(state: StateDirectory, with_process: int | None = None) -> RunningService:
    """Starts the service in the background.

    :raises click.ClickException: it ended, or did not become ready in time.
    """
    log = state.path / "service.log"
    more = [] if with_process is None else [str(with_process)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "local_sagemaker.sagemaker_service", str(state.path), *more],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        running = state.running()
        if running is not None and running.pid == process.pid:
            with suppress(OSError):
                running.instances()
                return running
        time.sleep(0.05)
    if process.poll() is None:
        process.terminate()
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    raise click.ClickException(f"it did not start; the end of {log}:\n{tail}")
