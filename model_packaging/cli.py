"""`neuron-endpoint`: what can be known about an endpoint before it exists.

Only what is named is read: the files on the command line and the MODEL. The process's own environment counts only with
`--env`, or for the bare names in an env file: a laptop's leftovers must not decide what an endpoint is checked for.
Exit status: 0, 1 (something would fail), 2 (usage).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from local_sagemaker.cli import local

if TYPE_CHECKING:
    from handler.errors import SettingError
    from handler.json_value import Json
    from model_packaging.examination import Examination

Command = Callable[..., Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """SageMaker endpoints for language models on AWS Inferentia and Trainium."""


main.add_command(local)


@main.group()
def config() -> None:
    """The settings of an endpoint."""


def settings_options(command: Command) -> Command:
    """Where the settings come from; one of the three."""
    for option in (
        click.option("--env", "own", is_flag=True, help="Read the environment of this process."),
        click.option("--config", "document", metavar="FILE", help="Settings in YAML, TOML or JSON: a path or s3://."),
        click.option("--env-file", metavar="FILE", help="An environment as `docker run --env-file` takes it."),
    ):
        command = option(command)
    return command


def plan_options(command: Command) -> Command:
    """What a plan is made for."""
    for option in (
        click.option("--line", help="The line of vLLM and Neuron, nxdi-0.16 for one."),
        click.option("--instance", help="The instance, ml.trn2.48xlarge for one."),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@config.command()
@settings_options
@json_option
@click.option("--yaml", "as_yaml", is_flag=True, help="Print a document for --config or ENDPOINT_CONFIG.")
@click.option("--all", "everything", is_flag=True, help="Print the settings that are at their defaults, too.")
@click.argument("model", required=False)
def explain(
    env_file: str | None,
    document: str | None,
    own: bool,
    as_json: bool,
    as_yaml: bool,
    everything: bool,
    model: str | None,
) -> None:
    """Each setting, its value and where the value is from. Secrets are masked."""
    from handler.config.explain import rows, secrets, to_document
    from handler.config.load import load
    from handler.config.problems import mask
    from handler.errors import SettingError

    try:
        found = load(_environ(env_file, document, own), model=model)
    except SettingError as error:
        _refuse(error, as_json)
    shown = rows(found)
    unused = {mask(setting, secrets(found)): reason for setting, reason in found.unused.items()}
    if as_yaml:
        click.echo(to_document(found), nl=False)
    elif as_json:
        _print({"settings": [row.document() for row in shown], "unused": {**unused}})
    else:
        from model_packaging.tables import settings_table, show

        notes = [f"{setting}: has no effect here, {reason}." for setting, reason in unused.items()]
        more = "" if everything else "\n--all shows the settings at their defaults as well."
        show(settings_table(row for row in shown if everything or row.given), "\n".join(notes) + more)


@main.command()
@settings_options
@plan_options
@json_option
@click.argument("model")
def check(
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
    found = _examine(_environ(env_file, document, own), model, instance, line)
    if as_json:
        _print(found.document())
    else:
        from model_packaging.tables import findings_table, memory_line, show

        count = sum(finding.severity.value == "error" for finding in found.findings)
        verdict = f"{count} error{'s' if count != 1 else ''}." if count else "Nothing here would keep it from starting."
        table = [findings_table(found.findings)] if found.findings else []
        vllm = [f"{found.vllm}."] if found.vllm else []
        show(*table, *([memory_line(found.memory)] if found.memory else []), *vllm, verdict)
    sys.exit(1 if found.failed else 0)


@main.command()
@settings_options
@plan_options
@json_option
@click.argument("model")
def plan(
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
    found = _examine(_environ(env_file, document, own), model, instance, line)
    made = None if found.failed else found.plan
    if as_json:
        _print(found.document() if made is None else made.document())
    else:
        from model_packaging.tables import findings_table, plan_table, show

        vllm = [f"{found.vllm}."] if found.vllm else []
        show(findings_table(found.findings) if made is None else plan_table(made), *vllm)
    sys.exit(1 if found.failed else 0)


def _environ(env_file: str | None, document: str | None, own: bool) -> Mapping[str, str]:
    if sum(map(bool, (env_file, document, own))) > 1:
        raise click.UsageError("Give one of --env-file, --config and --env.")
    if document:
        if not document.startswith(("s3://", "{")) and not Path(document).is_file():
            raise click.BadParameter(f"There is no file {document}.", param_hint="--config")
        return {"ENDPOINT_CONFIG": document}
    if env_file:
        return _env_file(env_file)
    return os.environ if own else {}


def _env_file(name: str) -> Mapping[str, str]:
    from handler.config.env_file import parse
    from handler.errors import SettingError

    try:
        return parse(Path(name).read_text(encoding="utf-8"), name, os.environ)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{name} cannot be read ({error})", param_hint="--env-file") from None
    except SettingError as error:
        raise click.BadParameter(error.message, param_hint="--env-file") from None


def _examine(environ: Mapping[str, str], model: str, instance: str | None, line: str | None) -> Examination:
    from handler.errors import SettingError
    from handler.neuron.catalogue import find
    from handler.neuron.lines.table import NAMES
    from model_packaging.examination import examine

    if line and line not in NAMES:
        raise click.BadParameter(f"'{line}' is no line. Known: {', '.join(NAMES)}.", param_hint="--line")
    try:
        if instance:
            find(instance, "--instance")
    except SettingError as error:
        raise click.BadParameter(f"{error.problem}. {error.mend}", param_hint="--instance") from None
    return examine(environ, model, instance=instance, line=line)


def _refuse(error: SettingError, as_json: bool) -> NoReturn:
    """Every problem, as findings, and exit status 1."""
    from model_packaging.examination import refused

    found = refused(error)
    if as_json:
        _print(found.document())
    else:
        from model_packaging.tables import findings_table, show

        show(findings_table(found.findings))
    sys.exit(1)


def _print(value: dict[str, Json]) -> None:
    click.echo(json.dumps(value, indent=2))
