"""`neuron-endpoint invoke`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import AMOUNT, TEXT, json_option, local_only_option, region_option, require_used
from model_packaging.console.output import REQUEST_FAILED, print_json

if TYPE_CHECKING:
    from model_packaging.client import EndpointClient, InvocationFailed

# An option, and the parameter without which it has no effect: with --body, the whole request is in the file.
NEEDS = (
    ("system", "prompt"),
    ("max_tokens", "prompt"),
    ("temperature", "prompt"),
    ("wait", "location"),
    ("async_seconds", "location"),
    ("longest", "wait"),
)


@click.command("invoke")
@click.argument("endpoint")
@click.argument("prompt", required=False, type=TEXT)
@click.option("--body", metavar="FILE", help="Send this JSON file (- is standard input) instead of PROMPT.")
@click.option("--system", type=TEXT, help="Put this system message before PROMPT.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Stop after so many tokens. Default: what fits.")
@click.option("--temperature", type=AMOUNT, help="Sample at this temperature. Default: the model's.")
@click.option("--component", help="Send the requests to this inference component.")
@click.option("--no-stream", "whole", is_flag=True, help="Wait for the whole reply (SageMaker allows 60 s).")
@click.option("--async", "location", metavar="s3://...", help="Send asynchronously: put PROMPT into this object.")
@click.option(
    "--async-seconds",
    default=900,
    show_default=True,
    type=click.IntRange(1, 3600),
    help="Limit the asynchronous request's time. The endpoint has its own limit (deploy --async-seconds).",
)
@click.option("--wait", is_flag=True, help="Wait for the asynchronous answer.")
@click.option("--longest", default=3600.0, show_default=True, type=AMOUNT, help="Wait no longer (s).")
@region_option
@json_option
@local_only_option
def command(
    endpoint: str,
    prompt: str | None,
    body: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    component: str | None,
    whole: bool,
    location: str | None,
    async_seconds: int,
    wait: bool,
    longest: float,
    region: str | None,
    as_json: bool,
) -> None:
    """Sends a request to an endpoint and prints the reply while it is generated.

    With --json each event is printed on its own line. Exit status 4: the endpoint answered with an error.
    """
    from model_packaging.client import EndpointClient, InvocationFailed

    if location and (component or whole):
        raise click.UsageError("--async goes without --component and --no-stream.")
    require_used(NEEDS)
    client = EndpointClient(endpoint, component=component, region=region)
    prompted = prompt is not None or body is not None
    request = _request(prompt, body, system, max_tokens, temperature) if prompted or not location else None
    try:
        if location:
            _queue(client, location, request, async_seconds, longest if wait else None, region, as_json)
        else:
            assert request is not None
            _ask(client, request, whole, as_json)
    except InvocationFailed as error:
        sys.stdout.flush()
        _tell(error, as_json)
        sys.exit(REQUEST_FAILED)


def _ask(client: EndpointClient, request: dict[str, Any], whole: bool, as_json: bool) -> None:
    from model_packaging.client import has_further_choices, text_of

    empty, further = True, False
    for event in [client.invoke(request)] if whole else client.stream(request):
        if as_json:
            click.echo(json.dumps(event, indent=2 if whole else None, ensure_ascii=False))
        else:
            text = text_of(event)
            empty = empty and not text
            further = further or has_further_choices(event)
            click.echo(text, nl=False)
    if not as_json:
        click.echo()
        if empty:
            click.echo("The reply has no text: only thinking, a tool call or other data. --json shows it.", err=True)
        if further:
            click.echo("The reply has further choices: only the first is printed. --json shows all.", err=True)


def _queue(
    client: EndpointClient,
    location: str,
    request: dict[str, Any] | None,
    async_seconds: int,
    seconds: float | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Sends an asynchronous request. With --wait, prints the reply, and its location on standard error before."""
    from model_packaging.async_reply import put_request, wait_for_answer
    from model_packaging.client import text_of

    if request is not None:
        try:
            put_request(location, request, region=region)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--async") from None
    places = client.invoke_async(location, InvocationTimeoutSeconds=async_seconds)
    if seconds is None:
        print_json({**places})
        return
    click.echo(f"Waiting for {places['output']}", err=True)
    answer = wait_for_answer(places, seconds, region=region)
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(answer if isinstance(answer, str) else text_of(answer))


def _request(
    prompt: str | None, body: str | None, system: str | None, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    if (prompt is None) == (body is None):
        raise click.UsageError("Give a PROMPT, or a whole request with --body.")
    if body is not None:
        try:
            text = sys.stdin.read() if body == "-" else Path(body).read_text(encoding="utf-8")
            document = json.loads(text)
            json.dumps(document, ensure_ascii=False).encode()  # half a character, as \ud83d, is no text
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"it cannot be read ({error})", param_hint="--body") from None
        if not isinstance(document, dict):
            raise click.BadParameter("it is no JSON object", param_hint="--body")
        return document
    messages = [{"role": "system", "content": system}] if system else []
    asked = {"max_tokens": max_tokens, "temperature": temperature}
    request: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": prompt}]}
    return {**request, **{name: value for name, value in asked.items() if value is not None}}


def _tell(error: InvocationFailed, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": error.error, "status": error.status}, ensure_ascii=False))
        return
    status = f" ({error.status})" if error.status else ""
    click.echo(f"\nThe endpoint answered with an error{status}: {error}", err=True)
    if error.log:
        click.echo(f"Its log: {error.log}", err=True)
