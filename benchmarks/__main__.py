"""`python -m benchmarks`: runs a benchmark. README.md in this folder describes them."""

from __future__ import annotations

import click

from benchmarks.on_aws import on_aws
from benchmarks.restore.fetch_command import fetch_command
from benchmarks.restore.restore_command import restore_command
from benchmarks.serving.gateway_ceiling import gateway
from benchmarks.serving.ping_times import ping_times
from benchmarks.serving.serving_command import serving_command
from benchmarks.serving.steps import steps
from benchmarks.start.first_replies import first_replies
from benchmarks.start.installs import installs
from benchmarks.start.restart_times import restart_times
from benchmarks.start.s3_start import s3_start
from benchmarks.tuning.log_reading import tune_log


@click.group()
def main() -> None:
    """Benchmarks of this project beside the usual alternatives."""


COMMANDS = (
    serving_command,
    restore_command,
    fetch_command,
    first_replies,
    restart_times,
    s3_start,
    installs,
    gateway,
    ping_times,
    steps,
    tune_log,
    on_aws,
)
for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
