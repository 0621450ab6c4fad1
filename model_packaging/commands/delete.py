"""`neuron-endpoint delete`."""

from __future__ import annotations

from typing import Any

import click

from model_packaging.console.options import dry_run_option, json_option, local_option, poll_option, region_option
from model_packaging.console.output import print_json


@click.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@local_option
@poll_option
@region_option
@dry_run_option
@json_option
def command(name: str, yes: bool, local: bool, poll: float, region: str | None, dry_run: bool, as_json: bool) -> None:
    """Deletes everything that `deploy NAME` created, by its tag, and nothing else. Exit status 1 if there is nothing.

    The package in S3 and the container's logs stay.
    """
    from model_packaging.console.output import lines
    from model_packaging.deployment.aws import Aws
    from model_packaging.deployment.removal import Removal, as_lines
    from model_packaging.deployment.watch import PollInterval
    from model_packaging.local_endpoint import LocalLog

    removal = Removal(Aws(region), name)
    there: list[Any] = as_lines(removal.owned())
    if not dry_run and there:
        if not yes:
            question = "\n".join(["This is deleted:", *(f"  {resource}" for resource in there), "Go on?"])
            if not click.confirm(question, err=True):
                click.echo("Nothing was deleted.", err=True)
                raise click.exceptions.Exit(1)
        with lines() as tell:
            removal.run(tell, PollInterval(poll=poll), LocalLog(name) if local else None)
    if as_json:
        print_json({"deleted": [] if dry_run else there, "there": there if dry_run else []})
    elif not there:
        click.echo(f"Nothing carries the tag of {name}.")
    else:
        click.echo(
            "\n".join([f"Would delete {resource}." if dry_run else f"Deleted {resource}." for resource in there])
        )
    if not there:
        raise click.exceptions.Exit(1)
