"""`neuron-endpoint bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import COUNT, TEXT, json_option, local_only_option, region_option
from model_packaging.console.output import REQUEST_FAILED, print_json, request_bar

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT = "Tell a story about a lighthouse keeper who repairs clocks."
MOST, CONCURRENCY = 256, 4


class Counts(click.ParamType[tuple[int, ...]]):
    """A number of concurrent requests, or several, separated by commas."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(dict.fromkeys(int(word) for word in str(value).split(",")))
        except ValueError:
            counts = ()
        if not counts or not all(1 <= count <= MOST for count in counts):
            self.fail(f"{value!r} has no whole numbers from 1 to {MOST} with commas between them.", param, context)
        return counts


@click.command("bench")
@click.argument("endpoint")
@click.option("--component", help="Send the requests to this inference component.")
@click.option("--requests", default=32, show_default=True, type=COUNT, help="Send so many each time.")
@click.option("--concurrency", type=Counts(), help="Keep so many in flight. Several run in turn. Default: 4.")
@click.option("--max-tokens", default=128, show_default=True, type=COUNT, help="Ask for so many tokens.")
@click.option("--prompt", default=PROMPT, type=TEXT, show_default=True, help="Send this prompt in every request.")
@click.option("--plot", metavar="FILE", type=click.Path(path_type=Path), help="Draw a plot: .png, .svg or .pdf.")
@region_option
@json_option
@local_only_option
def command(
    endpoint: str,
    component: str | None,
    requests: int,
    concurrency: tuple[int, ...] | None,
    max_tokens: int,
    prompt: str,
    plot: Path | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Sends a small streamed load and measures time to first token and tokens per second, as seen by this machine.

    Exit status 4: a request failed.
    """
    from model_packaging import plots
    from model_packaging.client import EndpointClient
    from model_packaging.load_measurement import measure, summary

    counts = concurrency or (min(CONCURRENCY, requests),)
    if max(counts) > requests:
        raise click.UsageError(f"--requests {requests} never has {max(counts)} in flight. Give {4 * max(counts)}.")
    if plot is not None:
        plots.check(plot)
    client = EndpointClient(endpoint, component=component, region=region, connections=max(counts))
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream_options": {"include_usage": True},
    }
    runs: dict[int, dict[str, Any]] = {}
    for count in counts:
        with request_bar(f"requests, {count} at a time", requests) as listener:
            samples, seconds = measure(client, body, requests, count, listener)
        runs[count] = {"concurrency": count, **summary(samples, seconds)}
    if plot is not None:
        plots.throughput(runs).savefig(plot)
    if as_json:
        print_json(next(iter(runs.values())) if len(runs) == 1 else {"runs": [*runs.values()]})
    else:
        _show(runs)
        if plot is not None:
            click.echo(f"Drawn: {plot}")
    sys.exit(REQUEST_FAILED if any(run["failed"] for run in runs.values()) else 0)


def _show(runs: Mapping[int, Mapping[str, Any]]) -> None:
    from model_packaging.console.tables import plain_table, show

    names = ("time_to_first_token", "time_between_tokens", "time_in_all")
    for count, found in runs.items():
        rows = [
            (name.replace("_", " "), *(f"{value * 1000:.1f} ms" for value in found[name].values()))
            for name in names
            if found[name]
        ]
        failed = "".join(f"\n{number} failed: {error}" for error, number in found["errors"].items())
        table = [plain_table(("", "p50", "p90", "p99"), rows)] if rows else []
        show(
            *table,
            f"{found['tokens_per_second']} tokens/s, {found['requests_per_second']} requests/s, "
            f"{count} at a time, {found['requests']} in all.{failed}",
        )
