"""``neuron-endpoint local chaos``: injects faults into the local SageMaker."""

from __future__ import annotations

import click

from local_sagemaker.service_client import ask, state_option
from local_sagemaker.state_directory import StateDirectory


@click.group()
def chaos() -> None:
    """Inject faults, to rehearse failures."""


endpoint_argument = click.argument("endpoint")
instance_option = click.option("--instance", help="The instance; default: a healthy one.")
seconds_option = click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="For how long."
)


@chaos.command()
@state_option
@endpoint_argument
@instance_option
def kill(state: StateDirectory, endpoint: str, instance: str | None) -> None:
    """Kill an instance by SIGKILL. The service notices and replaces it."""
    killed = ask(state, "kill", endpoint=endpoint, instance=instance)
    click.echo(f"Killed {killed['instance']} (process {killed['pid']}).")


@chaos.command()
@state_option
@endpoint_argument
@instance_option
@seconds_option
def refuse_pings(state: StateDirectory, endpoint: str, instance: str | None, seconds: float) -> None:
    """Make an instance's health checks fail. The service notices and replaces it."""
    found = ask(state, "refuse-pings", endpoint=endpoint, instance=instance, seconds=seconds)
    click.echo(f"Pings of {found['instance']} fail for {seconds:g} s.")


@chaos.command()
@state_option
@endpoint_argument
@seconds_option
@click.option("--delay", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Seconds per invocation.")
def slow(state: StateDirectory, endpoint: str, seconds: float, delay: float) -> None:
    """Delay invocations, as a slow network would."""
    ask(state, "slow", endpoint=endpoint, seconds=seconds, delay=delay)
    click.echo(f"Each invocation of {endpoint} takes {delay:g} s longer for {seconds:g} s.")


@chaos.command()
@state_option
@endpoint_argument
@seconds_option
@click.option("--share", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="The share of invocations.")
def throttle(state: StateDirectory, endpoint: str, seconds: float, share: float) -> None:
    """Reject invocations with a ThrottlingException."""
    ask(state, "throttle", endpoint=endpoint, seconds=seconds, share=share)
    click.echo(f"{share:.0%} of the invocations of {endpoint} are throttled for {seconds:g} s.")


@chaos.command()
@state_option
@click.argument("code")
@click.option("--times", type=click.IntRange(min=0), default=1, show_default=True, help="How many calls; 0 cancels.")
@click.option("--operation", help="InvokeEndpoint, CreateEndpoint, ...; default: invocations, if they have this error.")
@click.option("--endpoint", help="Only invocations of this endpoint.")
def error(state: StateDirectory, code: str, times: int, operation: str | None, endpoint: str | None) -> None:
    """Make the next calls fail with a documented error: ModelNotReadyException, ResourceLimitExceeded, ..."""
    planned = ask(state, "error", code=code, times=times, operation=operation, endpoint=endpoint)
    names = ", ".join(planned["operations"])
    click.echo(f"The next {times} of these fail with {code}: {names}." if times else f"No more {code} of {names}.")
