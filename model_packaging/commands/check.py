"""`neuron-endpoint check` and `neuron-endpoint plan`, which examine settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import click

from model_packaging.console.options import examination_options
from model_packaging.console.output import print_json, refuse

if TYPE_CHECKING:
    from handler.json_value import Json
    from handler.neuron.planning.examination import Examination


STARTS = "Nothing here would keep it from starting."
INCOMPLETE = "Nothing that was checked would keep it from starting. Not everything could be checked."
NOT_CHECKED = 5


@click.command("check")
@examination_options
def check_command(found: Examination, as_json: bool) -> None:
    """Checks whether an endpoint with these settings would start, and lists what would fail.

    MODEL is a directory, s3://bucket/prefix or a hub id. Its JSON files, tokenizer, chat template and headers of
    safetensors are read, and those of a draft and of adapters. If its shape is known, check also predicts what the plan
    reaches. The exit status is 1 for errors, and 5 if there are none but something could not be looked at.
    """
    report(found, as_json)


def report(found: Examination, as_json: bool, more: Mapping[str, Json] | None = None) -> NoReturn:
    """Prints the examination, after `more` in JSON, and exits with its status."""
    from handler.neuron.checkpoint.file_findings import UNCHECKED
    from handler.neuron.planning.file_examination import with_files
    from model_packaging.sizing.prediction import examined_predictions

    found, predictions = with_files(found), examined_predictions(found)
    unchecked = any(finding.code == UNCHECKED for finding in found.findings)
    if as_json:
        print_json({**(more or {}), **found.document(), "predictions": [one.document() for one in predictions]})
    else:
        from model_packaging.console.tables import findings_table, memory_line, show

        count = sum(finding.severity.value == "error" for finding in found.findings)
        planned = any(finding.code == "line-not-served" for finding in found.findings)
        starts = INCOMPLETE if unchecked else STARTS
        good = "No errors, for a plan: this container does not start the line." if planned else starts
        verdict = f"{count} error{'s' if count != 1 else ''}." if count else good
        table = [findings_table(found.findings)] if found.findings else []
        vllm = [f"{found.vllm}."] if found.vllm else []
        memory = [memory_line(found.memory)] if found.memory else []
        show(*table, *memory, *(one.sentence() for one in predictions), *vllm, verdict)
    sys.exit(1 if found.failed else NOT_CHECKED if unchecked else 0)


@click.command("plan")
@examination_options
def plan_command(found: Examination, as_json: bool) -> None:
    """Shows the engine arguments and the environment variables of an endpoint with these settings.

    If the endpoint would not start, the findings are printed instead, as by `check`.
    """
    vllm = [f"{found.vllm}."] if found.vllm else []
    if found.failed or found.plan is None:
        refuse(found, as_json, *vllm)
    if as_json:
        print_json(found.plan.document())
    else:
        from model_packaging.console.tables import plan_table, show

        show(plan_table(found.plan), *vllm)
