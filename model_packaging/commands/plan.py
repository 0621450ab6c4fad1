"""`neuron-endpoint plan`."""

from __future__ import annotations

import sys

import click

from model_packaging.console.examined import examined
from model_packaging.console.options import environ_of, json_option, plan_options, settings_options
from model_packaging.console.output import print_json


@click.command("plan")
@settings_options
@plan_options
@json_option
@click.argument("model")
def command(
    env_file: str | None,
    document: str | None,
    own: bool,
    instance: str | None,
    line: str | None,
    as_json: bool,
    model: str,
) -> None:
    """The engine arguments and the environment that an endpoint with these settings starts its engine with.

    Where it would not start, the findings are printed instead, as `check` does.
    """
    found = examined(environ_of(env_file, document, own), model, instance, line)
    made = None if found.failed else found.plan
    if as_json:
        print_json(found.document() if made is None else made.document())
    else:
        from model_packaging.console.tables import findings_table, plan_table, show

        vllm = [f"{found.vllm}."] if found.vllm else []
        show(findings_table(found.findings) if made is None else plan_table(made), *vllm)
    sys.exit(1 if found.failed else 0)
