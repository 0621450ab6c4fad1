"""`neuron-endpoint accuracy`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import (
    AMOUNT,
    FiniteRange,
    json_option,
    local_only_option,
    region_option,
    require_used,
)
from model_packaging.console.output import REQUEST_FAILED, print_json, require_writable

if TYPE_CHECKING:
    from handler.json_value import Json

PROMPTS = (
    "I believe the meaning of life is",
    "The capital of France is",
    "The president of the United States is",
    "Water boils at",
)
FILE = click.Path(path_type=Path, dir_okay=False)
# An option, and the parameter without which it has no effect: a reference has its own prompts and number of tokens.
NEEDS = (
    ("prompts", "save"),
    ("max_tokens", "save"),
    ("least", "reference"),
    ("tolerance", "reference"),
    ("tolerance", "logprobs"),
)


@click.command("accuracy")
@click.argument("endpoint")
@click.option("--component", help="Send the requests to this inference component.")
@click.option("--save", metavar="FILE", type=FILE, help="Save the endpoint's tokens as this reference file.")
@click.option("--reference", metavar="FILE", type=FILE, help="Compare with this reference file, as --save wrote it.")
@click.option("--prompts", metavar="FILE", type=FILE, help="Read prompts for --save, one per line. Default: four.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(min=1), help="Ask for so many tokens.")
@click.option("--least", default=0.9, show_default=True, type=FiniteRange(0, 1), help="Require this equal share.")
@click.option("--logprobs", is_flag=True, help="Compare logprobs, too. The endpoint needs ENDPOINT_LOGPROBS=true.")
@click.option(
    "--tolerance", default=0.1, show_default=True, type=AMOUNT, help="Allow log probabilities to differ by so much."
)
@region_option
@json_option
@local_only_option
def command(
    endpoint: str,
    component: str | None,
    save: Path | None,
    reference: Path | None,
    prompts: Path | None,
    max_tokens: int,
    least: float,
    logprobs: bool,
    tolerance: float,
    region: str | None,
    as_json: bool,
) -> None:
    """Compares the tokens that an endpoint generates greedily with those of a reference run.

    Save the reference where the model is known to be right: the CPU engine on this machine (`deploy --local`), or an
    endpoint before an update. Tokens count up to the first difference.

    Exit status 1: fewer tokens are equal, or the log probabilities differ more. 4: the endpoint answered with an error.
    """
    from model_packaging.client import EndpointClient, InvocationFailed
    from model_packaging.token_runs import (
        Reference,
        compare,
        mean_share,
        read_reference,
        run_tokens,
        write_reference,
    )

    if (save is None) == (reference is None):
        raise click.UsageError("Give --save FILE or --reference FILE.")
    require_used(NEEDS)
    try:
        known = read_reference(reference) if reference else Reference(max_tokens, ())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--reference") from None
    if logprobs and any(run.token_ids and not run.logprobs for run in known.runs):
        raise click.UsageError(f"{reference} has no log probabilities: save it with --logprobs.")
    if save is not None:
        require_writable("--save", save)
    asked = [run.prompt for run in known.runs] or _prompts(prompts)
    client = EndpointClient(endpoint, component=component, region=region)
    try:
        runs = tuple(run_tokens(client, asked, known.max_tokens, logprobs=logprobs))
    except InvocationFailed as error:
        click.echo(f"The endpoint answered with an error: {error}", err=True)
        sys.exit(REQUEST_FAILED)
    if save is not None:
        write_reference(save, Reference(max_tokens, runs))
        if as_json:
            print_json({"saved": str(save), "prompts": len(runs)})
        else:
            click.echo(f"{save}: the tokens of {len(runs)} prompts")
        return
    comparisons = [compare(run, before) for run, before in zip(runs, known.runs, strict=True)]
    share = mean_share(comparisons)
    too_far = [
        comparison
        for comparison in comparisons
        if logprobs and comparison.equal and (comparison.difference is None or comparison.difference > tolerance)
    ]
    good = share >= least and not too_far
    if as_json:
        rows: list[Json] = [asdict(comparison) for comparison in comparisons]
        print_json({"share": round(share, 4), "accurate": good, "prompts": rows})
    else:
        for each in comparisons:
            distance = "" if each.difference is None else f", log probabilities within {each.difference:.3f}"
            click.echo(f"{each.equal} of {each.length} tokens are equal{distance}: {each.prompt[:60]}")
        click.echo(f"{share:.0%} of the tokens are equal; {least:.0%} are required.")
        if too_far:
            click.echo(f"Of {len(too_far)} prompts the log probabilities are missing, or differ by over {tolerance:g}.")
    sys.exit(0 if good else 1)


def _prompts(path: Path | None) -> list[str]:
    if path is None:
        return list(PROMPTS)
    try:
        prompts = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"it cannot be read ({error})", param_hint="--prompts") from None
    if not prompts:
        raise click.BadParameter("it has no prompts", param_hint="--prompts")
    return prompts
