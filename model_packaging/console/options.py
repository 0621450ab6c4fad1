"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from handler.neuron.planning.examination import Examination

Command = Callable[..., Any]
POLL_SECONDS, LOCAL_POLL_SECONDS = 10.0, 0.5
COUNT = click.IntRange(min=1)
SETTINGS = ("ENDPOINT_", "SM_VLLM_", "SM_ON_", "OPTION_", "SERVING_", "HF_MODEL_ID", "NEURON_COMPILED_ARTIFACTS")


class FiniteRange(click.FloatRange):
    """A number in a range. `nan` is in none, and `inf` is no amount of anything."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number = float(super().convert(value, param, context))
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, context)
        return number


class RequestText(click.ParamType[str]):
    """A text for a request, which is UTF-8. A terminal with another encoding gives bytes that are none."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8. Use a terminal in UTF-8.", param, context)
        return text


AMOUNT = FiniteRange(min=0)
TEXT = RequestText()

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
env_file_option = click.option(
    "--env-file", metavar="FILE", help="Read an environment file, as `docker run --env-file` does."
)
document_option = click.option(
    "--config", "document", metavar="FILE", help="Read settings (YAML, TOML, JSON) from a file or s3://."
)
region_option = click.option("--region", help="Use this AWS region. Default: AWS_DEFAULT_REGION, or the profile's.")


def _use_local(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value and not context.resilient_parsing:
        from model_packaging.local_endpoint import use_local

        use_local()
    return value


# The callback runs when the option is read, before any AWS client is created.
_LOCAL_HELP = "Use the SageMaker that `neuron-endpoint local up` started here."
_local = partial(click.option, "--local", is_flag=True, is_eager=True, callback=_use_local, help=_LOCAL_HELP)
local_option = _local()
local_only_option = _local(expose_value=False)  # for commands that do not otherwise use the value


def _poll(context: click.Context, parameter: click.Parameter, value: float | None) -> float:
    if value is not None:
        return value
    return LOCAL_POLL_SECONDS if context.params.get("local") else POLL_SECONDS


poll_option = click.option(
    "--poll",
    type=FiniteRange(min=0.1),
    callback=_poll,
    help=f"Poll every so many seconds. Default: {POLL_SECONDS:g}; with --local {LOCAL_POLL_SECONDS:g}.",
)


def settings_options(command: Command) -> Command:
    """Adds the options that name the source of the settings. The command gets the settings as `environ`."""

    @env_file_option
    @document_option
    @click.option("--env", "own", is_flag=True, help="Take this process's environment as the settings.")
    @wraps(command)
    def with_environ(env_file: str | None, document: str | None, own: bool, **given: Any) -> Any:
        environ = environ_of(env_file, document, own)
        if unread := sorted(name for name in os.environ.keys() - environ.keys() if name.startswith(SETTINGS)):
            click.echo(f"Not read, as --env is not given: {', '.join(unread)} of this process's environment.", err=True)
        return command(environ=environ, **given)

    return with_environ


def _known_line(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value:
        from handler.neuron.lines.line_registry import NAMES

        if value not in NAMES:
            raise click.BadParameter(f"'{value}' is not a line. Known: {', '.join(NAMES)}.")
    return value


line_option = click.option("--line", callback=_known_line, help="Plan for this Neuron line, for example nxdi-0.16.")


def plan_options(command: Command) -> Command:
    """Adds the options that select the line and the instance."""
    instance = click.option("--instance", help="Plan for this instance type, for example ml.trn2.48xlarge.")
    return instance(line_option(command))


def container_options(command: Command) -> Command:
    """Adds the options that set a container's environment. The command gets `variables` and `document`."""

    @env_file_option
    @click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable (repeatable).")
    @document_option
    @wraps(command)
    def with_variables(env_file: str | None, variables: tuple[str, ...], **given: Any) -> Any:
        return command(variables={**environ_of(env_file, None, False), **pairs(variables, "--set")}, **given)

    return with_variables


def network_options(command: Command) -> Command:
    """Adds the options of a VPC. The command gets `subnets` and `groups`."""
    subnet = click.option("--subnet", "subnets", multiple=True, help="Run in this VPC subnet ID (repeatable).")
    group = click.option("--security-group", "groups", multiple=True, help="Use this security group ID (repeatable).")
    return subnet(group(command))


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """The values of a repeatable option NAME=VALUE, by name."""
    parts = [text.partition("=") for text in texts]
    for name, equals, _ in parts:
        if not name or not equals:
            raise click.BadParameter("write NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in parts}


def environ_of(env_file: str | None, document: str | None, own: bool) -> Mapping[str, str]:
    """Returns the environment that the three options name.

    The process's own environment is used only with `--env`, or for names without a value in an env file: variables of a
    laptop must not affect the check of an endpoint.
    """
    if sum(map(bool, (env_file, document, own))) > 1:
        raise click.UsageError("Give one of --env-file, --config and --env.")
    if document:
        from handler.config.secret_values import location_shown

        if not document.startswith(("s3://", "{")) and not Path(document).is_file():
            raise click.BadParameter(f"There is no file {location_shown(document)}.", param_hint="--config")
        return {"ENDPOINT_CONFIG": document}
    if env_file:
        return _env_file(env_file)
    return os.environ if own else {}


def _env_file(name: str) -> Mapping[str, str]:
    from handler.config.loading.line_formats import parse_env_file
    from handler.errors import SettingError

    try:
        return parse_env_file(Path(name).read_text(encoding="utf-8"), name, os.environ)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{name} cannot be read ({error})", param_hint="--env-file") from None
    except SettingError as error:
        raise click.BadParameter(error.message, param_hint="--env-file") from None


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
    from model_packaging.examination_report import examine

    require_instance(instance)
    return examine(environ, model, instance=instance, line=line)


def require_used(needs: Iterable[tuple[str, str]]) -> None:
    """Checks that no option of the command is given without the parameter that gives it an effect.

    :raises UsageError: one is.
    """
    context = click.get_current_context()
    names = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name, needed in needs:
        used = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if used and context.params[needed] in (None, False):
            label = names[needed] if names[needed].startswith("--") else names[needed].upper()
            raise click.UsageError(f"{names[name]} goes with {label}.")


def require_instance(instance: str | None) -> None:
    """:raises BadParameter: the value of --instance is no instance type with Neuron cores."""
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find_for_plan

    try:
        if instance:
            find_for_plan(instance, "--instance")
    except SettingError as error:
        raise click.BadParameter(f"{error.problem}. {error.fix}", param_hint="--instance") from None
