"""`neuron-endpoint check`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from model_packaging.console.examination_options import examination_options
from model_packaging.console.output import print_json

if TYPE_CHECKING:
    from handler.neuron.planning.examination import Examination


@click.command("check")
@examination_options
def command(found: Examination, as_json: bool) -> None:
    """Checks whether an endpoint with these settings would start, and lists what would fail.

    MODEL is a directory, s3://bucket/prefix or a hub id; only its JSON files and safetensors headers are read.
    """
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
