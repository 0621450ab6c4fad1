"""`neuron-endpoint logs`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import click

from model_packaging.console.options import COUNT, json_option, local_option, region_option


@click.command("logs")
@click.argument("name")
@click.option("--component", is_flag=True, help="Read the logs of the inference component NAME. Not with --local.")
@click.option("--since", default=60, show_default=True, type=COUNT, help="Show the last minutes. With --local, all.")
@click.option("--follow", "-f", is_flag=True, help="Show new lines until Ctrl-C.")
@click.option("--explain", is_flag=True, help="Show only the cause and fix of a known symptom.")
@click.option("--timeline", is_flag=True, help="Show only the steps of the last start, as bars.")
@local_option
@region_option
@json_option
def command(
    name: str,
    component: bool,
    since: int,
    follow: bool,
    explain: bool,
    timeline: bool,
    local: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Shows the logs of an endpoint's containers, sorted by time. Exit status 1 if there are none."""
    from model_packaging.deployment.aws import Aws
    from model_packaging.deployment.container_log import ContainerLog, groups
    from model_packaging.deployment.diagnosis import diagnose
    from model_packaging.deployment.start_timeline import bars, last_start
    from model_packaging.local_endpoint import LocalLog

    log = (
        LocalLog(name)
        if local
        else ContainerLog(Aws(region).logs, groups(name, component), int((time.time() - since * 60) * 1000))
    )
    lines = log.new()
    if not lines and (explain or timeline or not follow):
        click.echo(f"No container of {name} has written anything{'' if local else f' in {since} minutes'}.", err=True)
        raise click.exceptions.Exit(1)
    if isinstance(log, ContainerLog) and log.cut and lines:
        until = datetime.fromtimestamp(lines[-1].time / 1000, UTC)
        click.echo(f"Only the lines until {until:%H:%M:%S} were read: give a smaller --since.", err=True)
    if explain:
        diagnosis = diagnose("", [line.text for line in lines])
        if as_json:
            click.echo(
                json.dumps(diagnosis and {"cause": diagnosis.cause, "fix": diagnosis.fix, "seen": diagnosis.evidence})
            )
        elif diagnosis:
            click.echo("\n".join(diagnosis.lines()))
        else:
            of_time = "" if local else f" of the last {since} minutes"
            click.echo(f"None of the known symptoms is in the {len(lines)} lines{of_time}.")
        return
    if timeline:
        steps = last_start([line.text for line in lines])
        click.echo(json.dumps(steps) if as_json else "\n".join(bars(steps)))
        return
    while True:
        for line in lines:
            if as_json:
                click.echo(json.dumps({"time": line.time, "stream": line.stream, "text": line.text}))
            else:
                at = datetime.fromtimestamp(line.time / 1000, UTC)
                click.echo(f"{at:%H:%M:%S} {line.stream.rpartition('/')[2][-10:]} {line.text}")
        if not follow:
            return
        time.sleep(2)
        lines = log.new()
