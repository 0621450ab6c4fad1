"""`neuron-endpoint config explain`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from model_packaging.console.options import json_option, settings_options
from model_packaging.console.output import print_json, refuse


@click.group("config")
def command() -> None:
    """The settings of an endpoint."""


@command.command()
@settings_options
@json_option
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML for --config or ENDPOINT_CONFIG.")
@click.option("--all", "everything", is_flag=True, help="Show the settings at their defaults, too.")
@click.argument("model", required=False)
def explain(environ: Mapping[str, str], as_json: bool, as_yaml: bool, everything: bool, model: str | None) -> None:
    """Shows each setting, its value and the source of the value. Secrets are masked."""
    from handler.config.config_rows import rows, secrets, to_document
    from handler.config.loading.config_loader import load
    from handler.config.secret_values import mask
    from handler.errors import SettingError
    from handler.neuron.planning.examination import rejected_settings

    try:
        found = load(environ, model=model)
    except SettingError as error:
        refuse(rejected_settings(error), as_json)
    shown = rows(found)
    unused = {mask(setting, secrets(found)): reason for setting, reason in found.unused.items()}
    if as_yaml:
        click.echo(to_document(found), nl=False)
    elif as_json:
        print_json({"settings": [row.document() for row in shown], "unused": {**unused}})
    else:
        from model_packaging.console.tables import settings_table, show

        notes = [f"{setting}: has no effect here, {reason}." for setting, reason in unused.items()]
        more = "" if everything else "\n--all shows the settings at their defaults as well."
        show(settings_table(row for row in shown if everything or row.given), "\n".join(notes) + more)
