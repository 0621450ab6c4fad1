"""Examines settings for `check`, `plan`, `deploy` and `compile`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from handler.config import tracing_settings
from handler.config.config_rows import secrets, without_secrets
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.config.loading.file_reader import Fetch
from handler.config.loading.file_reader import fetch as fetch_small_file
from handler.config.problems import SettingErrors
from handler.config.value_source import Origin, ValueSource
from handler.custom_code.code_source import SCRIPT_DIRECTORY, check_code
from handler.errors import SettingError
from handler.neuron.checks.check_context import HOSTED
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.planning.examination import Examination, examine_config, rejected_settings
from handler.neuron.planning.file_examination import with_files
from model_packaging.deployment.definition.request import environment_problems


def examine(
    environ: Mapping[str, str], model: str, *, instance: str | None, line: str | None, fetch: Fetch = fetch_small_file
) -> Examination:
    """Makes a plan and a memory estimate. Every problem is a finding. Secrets in the plan are masked.

    :param environ: the settings. The process's own environment is not read. They must fit into a SageMaker model if the
        instance is SageMaker's, unless they are this process's own (`--env`).
    :param model: a directory, s3://bucket/prefix or hub id. It overrides the settings.
    :param instance, line: the values of the command line. They override the settings.
    """
    try:
        config = named(load(environ, fetch=fetch, model=model), instance, line)
    except SettingError as error:
        return rejected_settings(error)
    examination = examine_config(config, environ)
    hosted = (config.instance or "").startswith(HOSTED) and environ is not os.environ
    refused = [*environment_problems(environ)] if hosted else []
    if hosted and config.port != EndpointConfig().port:
        why = f"SageMaker sends its requests to port {EndpointConfig().port}, not {config.port}"
        refused.append(SettingError(config.setting("port"), why, "Leave it out."))
    traces = tracing_settings.problems(environ, isolated=config.network_isolation)
    for problem in (*refused, *traces, *_code_problems(config, environ)):
        examination = replace(examination, findings=(*rejected_settings(problem).findings, *examination.findings))
    return replace(examination, plan=_masked_plan(examination.plan, secrets(config)))


def _code_problems(config: EndpointConfig, environ: Mapping[str, str]) -> Iterator[SettingError]:
    """What the start would refuse of the code in a model's directory. A variable names a place in the container."""
    if Path(config.model).is_dir() and not environ.get(SCRIPT_DIRECTORY):
        try:
            check_code(config, config.model, environ)
        except SettingError as error:
            yield error


def named(config: EndpointConfig, instance: str | None, line: str | None) -> EndpointConfig:
    """Returns the configuration with the values of the command line."""
    sources = dict(config.sources)
    for field, value in (("instance", instance), ("line", line)):
        if value:
            sources[field] = ValueSource(Origin.ARGUMENT, f"--{field}")
    return replace(config, instance=instance or config.instance, line=line or config.line, sources=sources)


def _masked_plan(plan: EnginePlan | None, known: tuple[str, ...]) -> EnginePlan | None:
    if plan is None:
        return None
    args = {name: without_secrets(value, known, name) for name, value in plan.engine_args.items()}
    return EnginePlan(
        plan.line, args, {name: str(without_secrets(value, known, name)) for name, value in plan.env.items()}
    )


def require_startable(environ: Mapping[str, str]) -> None:
    """Checks that a container with these variables would compile, before an instance is rented or it is started.

    :raises SettingErrors: it would not. The error has every finding.
    """
    config = load(environ)
    findings = with_files(examine_config(config, environ)).findings
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    found = [SettingError(error.setting, error.why, error.fix) for error in errors]
    if problems := [*found, *_code_problems(config, environ)]:
        raise SettingErrors(problems)
