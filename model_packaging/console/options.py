"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]
POLL_SECONDS, LOCAL_POLL_SECONDS = 10.0, 0.5

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
region_option = click.option("--region", help="The AWS region; default: the profile's, or AWS_DEFAULT_REGION.")


def _use_local(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value and not context.resilient_parsing:
        from model_packaging.local_endpoint import use_local

        use_local()
    return value


# The callback runs when the option is read, before any AWS client is created.
_LOCAL_HELP = "On this machine, with what `neuron-endpoint local up` started."
_local = partial(click.option, "--local", is_flag=True, is_eager=True, callback=_use_local, help=_LOCAL_HELP)
local_option = _local()
local_only_option = _local(expose_value=False)  # for commands that do not otherwise use the value


def _poll(context: click.Context, parameter: click.Parameter, value: float | None) -> float:
    if value is not None:
        return value
    return LOCAL_POLL_SECONDS if context.params.get("local") else POLL_SECONDS


poll_option = click.option(
    "--poll",
    type=click.FloatRange(min=0.1),
    callback=_poll,
    help=f"Seconds between two polls; default: {POLL_SECONDS:g}, with --local {LOCAL_POLL_SECONDS:g}.",
)


def settings_options(command: Command) -> Command:
    """Adds the options that name the source of the settings. The command gets the settings as `environ`."""

    @click.option("--env-file", metavar="FILE", help="Variables in the format of `docker run --env-file`.")
    @click.option("--config", "document", metavar="FILE", help="Settings in YAML, TOML or JSON: a path or s3://.")
    @click.option("--env", "own", is_flag=True, help="Read the environment of this process.")
    @wraps(command)
    def with_environ(env_file: str | None, document: str | None, own: bool, **given: Any) -> Any:
        return command(environ=environ_of(env_file, document, own), **given)

    return with_environ


def plan_options(command: Command) -> Command:
    """Adds the options that select the line and the instance."""
    line = click.option("--line", help="The line of vLLM and Neuron, for example nxdi-0.16.")
    instance = click.option("--instance", help="The instance, for example ml.trn2.48xlarge.")
    return instance(line(command))


def environ_of(env_file: str | None, document: str | None, own: bool) -> Mapping[str, str]:
    """Returns the environment that the three options name.

    The process's own environment is used only with `--env`, or for names without a value in an env file: variables of a
    laptop must not affect the check of an endpoint.
    """
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
    from handler.config.loading.env_file import parse
    from handler.errors import SettingError

    try:
        return parse(Path(name).read_text(encoding="utf-8"), name, os.environ)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{name} cannot be read ({error})", param_hint="--env-file") from None
    except SettingError as error:
        raise click.BadParameter(error.message, param_hint="--env-file") from None
