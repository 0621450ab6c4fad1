"""`neuron-endpoint check`."""

from __future__ import annotations

import sys

import click

from model_packaging.console.examined import examined
from model_packaging.console.options import environ_of, json_option, plan_options, settings_options
from model_packaging.console.output import print_json


@click.command("check")
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
    """Whether an endpoint with these settings would start, and what it would trip over.

    MODEL is a directory, s3://bucket/prefix or a hub id; only its JSON files and safetensors headers are read.
    """
    found = examined(environ_of(env_file, document, own), model, instance, line)
    if as_json:
        print_json(found.document())
    else:
        from model_packaging.console.tables import findings_table, memory_line, show

        count = sum(finding.severity.value == "error" for finding in found.findings)
        verdict = f"{count} error{'s' if count != 1 else ''}." if count else "Nothing here would keep it from starting."
        table = [findings_table(found.findings)] if found.findings else []
        vllm = [f"{found.vllm}."] if found.vllm else []
        show(*table, *([memory_line(found.memory)] if found.memory else []), *vllm, verdict)
    sys.exit(1 if found.failed else 0)
