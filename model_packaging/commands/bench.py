"""`neuron-endpoint bench`."""

from __future__ import annotations

import sys
from typing import Any

import click

from model_packaging.commands.options import json_option, local_only_option, region_option
from model_packaging.commands.output import print_json
from model_packaging.commands.packaging import shown

PROMPT = "Tell a story about a lighthouse keeper who repairs clocks."


@click.command("bench")
@click.argument("endpoint")
@click.option("--component", help="The inference component.")
@click.option("--requests", default=32, show_default=True, type=click.IntRange(min=1))
@click.option("--concurrency", default=4, show_default=True, type=click.IntRange(1, 256), help="Requests at a time.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(min=1))
@click.option("--prompt", default=PROMPT, show_default=True)
@region_option
@json_option
@local_only_option
def command(
    endpoint: str,
    component: str | None,
    requests: int,
    concurrency: int,
    max_tokens: int,
    prompt: str,
    region: str | None,
    as_json: bool,
) -> None:
    """A small load, streamed: time to the first token and tokens a second, as seen from here.

    Exit status 4 when a request failed.
    """
    from model_packaging.client import EndpointClient
    from model_packaging.load import measure, summary

    client = EndpointClient(endpoint, component=component, region=region, connections=concurrency)
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    with shown("requests") as listener:
        samples, seconds = measure(client, body, requests, concurrency, listener)
    found: dict[str, Any] = summary(samples, seconds)
    if as_json:
        print_json(found)
    else:
        from model_packaging.tables import plain_table, show

        names = ("time_to_first_token", "time_between_tokens", "time_in_all")
        rows = [
            (name.replace("_", " "), *(f"{value * 1000:.1f} ms" for value in found[name].values()))
            for name in names
            if found[name]
        ]
        failed = "".join(f"\n{count} failed: {error}" for error, count in found["errors"].items())
        show(
            plain_table(("", "p50", "p90", "p99"), rows),
            f"{found['tokens_per_second']} tokens/s, {found['requests_per_second']} requests/s, "
            f"{concurrency} at a time, {requests} in all.{failed}",
        )
    sys.exit(4 if found["failed"] else 0)
