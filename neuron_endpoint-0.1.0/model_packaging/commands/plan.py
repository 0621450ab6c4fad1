"""`neuron-endpoint plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from model_packaging.console.options import examination_options
from model_packaging.console.output import print_json, refuse

if TYPE_CHECKING:
    from handler.neuron.planning.examination import Examination


@click.command("plan")
@examination_options
def command(found: Examination, as_json: bool) -> None:
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
