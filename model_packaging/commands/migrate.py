"""`neuron-endpoint migrate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import json_option, require_instance, settings_options
from model_packaging.console.output import print_json, refuse

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.config.finding import Finding


@click.command("migrate")
@settings_options
@click.option("--line", default="native-0.29", show_default=True, help="Migrate to this native line.")
@click.option("--instance", help="Plan for this instance type, for example ml.trn2.48xlarge.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write the migrated settings to this file.")
@json_option
@click.argument("model", required=False)
def command(
    environ: Mapping[str, str],
    line: str,
    instance: str | None,
    output: str | None,
    as_json: bool,
    model: str | None,
) -> None:
    """Translates settings of NxD Inference for the native plugin, and checks the result.

    Prints what becomes of each setting, what would still keep the endpoint from starting, and the document to deploy.
    MODEL is a directory, s3://bucket/prefix or a hub id; default: the settings' own. Only its small files are read.
    """
    from handler.config.config_rows import to_document
    from handler.config.loading.config_loader import load
    from handler.errors import SettingError
    from handler.neuron.lines.line import ConfigKeys
    from handler.neuron.lines.line_registry import LINES
    from handler.neuron.planning.examination import by_severity, examine_config, rejected_settings
    from model_packaging.examination_report import named
    from model_packaging.migration.native_settings import migrate

    lines = {one.name: one for one in LINES if one.keys is ConfigKeys.NATIVE}
    if line not in lines:
        raise click.BadParameter(f"'{line}' is not a native line. Known: {', '.join(lines)}.", param_hint="--line")
    require_instance(instance)
    try:
        config = load(environ, model=model)
        migration = migrate(named(_with_own_model(config, environ), instance, None), lines[line])
        text = to_document(migration.config)
        found = examine_config(replace(migration.config, model=config.model))
        left = _left_beside(migration.config, text, config.model)
        found = replace(found, findings=tuple(by_severity((*found.findings, *left))))
    except SettingError as error:
        refuse(rejected_settings(error), as_json)
    if output:
        Path(output).write_text(text, encoding="utf-8")
    if as_json:
        print_json(
            {
                "settings": [asdict(setting) for setting in migration.settings],
                "document": text,
                "findings": found.document()["findings"],
            }
        )
    else:
        from model_packaging.console.tables import findings_table, json_text, plain_table, show

        rows = [(one.setting, _short(json_text(one.value)), one.outcome.value, one.note) for one in migration.settings]
        show(plain_table(("setting", "value", "outcome", f"on {line}"), rows))
        if found.findings:
            show(findings_table(found.findings))
        if not output:
            click.echo(text, nl=False)
    sys.exit(1 if found.failed else 0)


def _with_own_model(config: EndpointConfig, environ: Mapping[str, str]) -> EndpointConfig:
    """The configuration with the settings' own model, which the document keeps. MODEL only says what is examined."""
    from handler.config.dialects.endpoint_variables import CONFIG
    from handler.config.loading.config_loader import load
    from handler.config.loading.file_reader import fetch
    from handler.config.value_source import Origin

    if config.source("model").origin is not Origin.ARGUMENT:
        return config
    document = environ.get(CONFIG, "").strip()
    own = load(environ, fetch=lambda place: fetch(place) if place == document else None)
    return replace(config, model=own.model, sources={**config.sources, "model": own.source("model")})


def _left_beside(migrated: EndpointConfig, document: str, model: str) -> Iterator[Finding]:
    """A finding for each setting of a file beside the model that the document leaves out: a start still reads it.

    They are errors if the endpoint would not start with them.
    """
    from handler.config.dialects.endpoint_variables import CONFIG
    from handler.config.finding import Finding, Severity
    from handler.config.loading.config_loader import load
    from handler.config.loading.document_text import parse
    from handler.config.value_source import Origin
    from handler.neuron.planning.examination import examine_config

    deployed = load({CONFIG: json.dumps(parse(document.encode()))}, model=model)
    beside = {target: each for target, each in deployed.sources.items() if each.origin is Origin.MODEL_FILE}
    left = [each for target, each in beside.items() if _value(deployed, target) != _value(migrated, target)]
    severity = Severity.ERROR if left and examine_config(deployed).failed else Severity.WARNING
    for source in left:
        why = "the document leaves it out, and a start still reads it beside the model"
        yield Finding("left-beside-model", severity, str(source), why, "Remove it from that file.")


def _value(config: EndpointConfig, target: str) -> object:
    field, _, key = target.partition(".")
    value = getattr(config, field)
    return (value or {}).get(key) if key else value


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
