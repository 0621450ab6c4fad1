"""Runs the examination that `check` and `plan` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from model_packaging.examination_report import Examination


def examined(environ: Mapping[str, str], model: str, instance: str | None, line: str | None) -> Examination:
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find
    from handler.neuron.lines.line_registry import NAMES
    from model_packaging.examination_report import examine

    if line and line not in NAMES:
        raise click.BadParameter(f"'{line}' is not a line. Known: {', '.join(NAMES)}.", param_hint="--line")
    try:
        if instance:
            find(instance, "--instance")
    except SettingError as error:
        raise click.BadParameter(f"{error.problem}. {error.fix}", param_hint="--instance") from None
    return examine(environ, model, instance=instance, line=line)
