"""Runs the examination that `check` and `plan` print."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import json_option, plan_options, settings_options

if TYPE_CHECKING:
    from handler.neuron.planning.examination import Examination


def examination_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds MODEL, --json and the options of settings, line and instance. The command gets an examination: `found`."""

    @settings_options
    @plan_options
    @json_option
    @click.argument("model")
    @wraps(command)
    def with_examination(
        environ: Mapping[str, str], model: str, instance: str | None, line: str | None, **given: Any
    ) -> None:
        command(found=examined(environ, model, instance, line), **given)

    return with_examination


def examined(environ: Mapping[str, str], model: str, instance: str | None, line: str | None) -> Examination:
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find_for_plan
    from handler.neuron.lines.line_registry import NAMES
    from model_packaging.examination_report import examine

    if line and line not in NAMES:
        raise click.BadParameter(f"'{line}' is not a line. Known: {', '.join(NAMES)}.", param_hint="--line")
    try:
        if instance:
            find_for_plan(instance, "--instance")
    except SettingError as error:
        raise click.BadParameter(f"{error.problem}. {error.fix}", param_hint="--instance") from None
    return examine(environ, model, instance=instance, line=line)
