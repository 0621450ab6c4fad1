"""`neuron-endpoint check`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from model_packaging.console.examination_options import examination_options
from model_packaging.console.output import print_json

if TYPE_CHECKING:
    from handler.neuron.planning.examination import Examination


STARTS = "Nothing here would keep it from starting."


@click.command("check")
@examination_options
def command(found: Examination, as_json: bool) -> None:
    """Checks whether an endpoint with these settings would start, and lists what would fail.

    MODEL is a directory, s3://bucket/prefix or a hub id; only its JSON files and safetensors headers are read. If its
    shape is known, check also predicts what the plan reaches.
    """
    from model_packaging.prediction.expected_rates import expected

    predictions = expected(found)
    if as_json:
        print_json({**found.document(), "predictions": [one.document() for one in predictions]})
    else:
        from model_packaging.console.tables import findings_table, memory_line, show
        from model_packaging.prediction.expected_rates import prediction_line

        count = sum(finding.severity.value == "error" for finding in found.findings)
        planned = any(finding.code == "line-not-served" for finding in found.findings)
        good = "No errors, for a plan: this container does not start the line." if planned else STARTS
        verdict = f"{count} error{'s' if count != 1 else ''}." if count else good
        table = [findings_table(found.findings)] if found.findings else []
        vllm = [f"{found.vllm}."] if found.vllm else []
        memory = [memory_line(found.memory)] if found.memory else []
        show(*table, *memory, *map(prediction_line, predictions), *vllm, verdict)
    sys.exit(1 if found.failed else 0)
