"""`neuron-endpoint invoke`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.commands.options import json_option, local_only_option, region_option
from model_packaging.commands.output import print_json

if TYPE_CHECKING:
    from model_packaging.client import EndpointClient, InvocationFailed

ANSWERED = 4


@click.command("invoke")
@click.argument("endpoint")
@click.argument("prompt", required=False)
@click.option(
    "--body", metavar="FILE", help="The whole request instead of PROMPT: a JSON file, or - for standard input."
)
@click.option("--system", help="A system message before PROMPT.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Default: what fits.")
@click.option("--temperature", type=float)
@click.option("--component", help="The inference component.")
@click.option("--no-stream", "whole", is_flag=True, help="Wait for the whole reply (SageMaker allows 60 s).")
@click.option("--async", "location", metavar="s3://...", help="Asynchronous: where the request's body is in S3.")
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
    region: str | None,
    as_json: bool,
) -> None:
    """Asks an endpoint; its answer is printed as it is generated.

    With --json each event is printed as it comes, one a line. Exit status 4: the endpoint answered with an error.
    """
    from model_packaging.client import EndpointClient, InvocationFailed

    client = EndpointClient(endpoint, component=component, region=region)
    if location:
        print_json({**client.invoke_async(location)})
        return
    request = _request(prompt, body, system, max_tokens, temperature)
    try:
        _ask(client, request, whole, as_json)
    except InvocationFailed as error:
        sys.stdout.flush()
        _tell(error, as_json)
        sys.exit(ANSWERED)


def _ask(client: EndpointClient, request: dict[str, Any], whole: bool, as_json: bool) -> None:
    from model_packaging.client import text_of

    if whole:
        reply = client.invoke(request)
        click.echo(json.dumps(reply, indent=2, ensure_ascii=False) if as_json else text_of(reply))
        return
    for event in client.stream(request):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            click.echo(text_of(event), nl=False)
    if not as_json:
        click.echo()


def _request(
    prompt: str | None, body: str | None, system: str | None, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    if (prompt is None) == (body is None):
        raise click.UsageError("Give a PROMPT, or a whole request with --body.")
    if body is not None:
        try:
            text = sys.stdin.read() if body == "-" else Path(body).read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"it cannot be read ({error})", param_hint="--body") from None
        if not isinstance(found, dict):
            raise click.BadParameter("it is no JSON object", param_hint="--body")
        return found
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
