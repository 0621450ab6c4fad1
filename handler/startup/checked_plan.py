"""Checks a configuration, makes the engine's plan, and sets the environment variables of the plan."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Final

from handler.config.dialects import neuron_variables as neuron
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.config.problems import SettingErrors
from handler.errors import SettingError
from handler.json_value import Json
from handler.model.model_source import Model
from handler.neuron.checks.legacy_lines import served_instead
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.line_registry import find_line, installed_line
from handler.neuron.planning.examination import examine_config
from handler.processes import current_environment

logger = logging.getLogger(__name__)
# By which vLLM finds a platform that it does not have itself (vLLM 0.16, vllm/plugins/__init__.py).
PLATFORM_PLUGINS: Final = "vllm.platform_plugins"
LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


# NumPy sets these for its import and deletes them after it, unless they are set (numpy/_core/__init__.py). Who reads
# all variables meanwhile, as botocore does for proxies, fails with a KeyError.
OF_NUMPY: Final = ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE")

# Which plugins vLLM loads: none if it is empty, all if it is not set (vllm/envs.py).
PLUGINS: Final = "VLLM_PLUGINS"


def use_environment(plan: EnginePlan) -> None:
    """Sets the environment variables that vLLM and the Neuron software read when they are imported.

    A variable that became a setting, and that the plan spells in another way, is removed: the plugin would read it too.
    So is an empty one, which counts as not set: they would make a number of it, or end because it is there (vLLM 0.24,
    vllm/envs.py; vllm-neuron 0.24.0.1.1.0, vllm_neuron/envs.py and vllm/worker/neuron_worker.py).
    """
    for name, value in current_environment().items():
        if not value.strip() and (neuron.reads(name) or name.startswith("VLLM_")) and name != PLUGINS:
            os.environ.pop(name, None)
    for name in neuron.TRANSLATED.keys() - plan.env.keys() if plan.line != "cpu" else ():
        os.environ.pop(name, None)
    os.environ.setdefault("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")  # an allowed host must not redirect to another one
    for name in OF_NUMPY:
        os.environ.setdefault(name, "1")
    os.environ.update(plan.env)


def checked_plan(config: EndpointConfig) -> EnginePlan:
    """The plan of a configuration. Findings of the checks are logged.

    NxD Inference's own class is not built here: its import takes 10 seconds and stays in the serving process. Our rules
    cover it, the engine's process builds it a moment later, and its error ends the start. `check` does build it.

    :raises SettingErrors: the configuration cannot work. The error has every finding.
    """
    examination = examine_config(config, current_environment(), build=None)
    if examination.vllm is not None:
        logger.info("%s", examination.vllm)
    for finding in examination.findings:
        logger.log(LEVELS[finding.severity], "[%s] %s: %s. %s", finding.code, finding.setting, finding.why, finding.fix)
    if examination.plan is None or examination.failed:
        errors = [finding for finding in examination.findings if finding.severity is Severity.ERROR]
        raise SettingErrors([SettingError(error.setting, error.why, error.fix) for error in errors])
    return examination.plan


def require_line(plan: EnginePlan, setting: str) -> None:
    """Checks that this container can start the plan's line.

    :raises SettingError: the line is for plans only, or its plugin for vLLM is not installed.
    """
    line = find_line(plan.line)
    if line is not None and not line.served:
        raise SettingError(setting, line.not_served, served_instead(line))
    if line is not None and line.framework:  # vLLM has the platform itself, and takes the framework that is installed
        missing = installed_line(installed_versions()) != line.name
    else:
        missing = line is not None and bool(line.platforms) and not entry_points(group=PLATFORM_PLUGINS)
    if missing:
        problem = f"the plan is for {plan.line}, and vLLM is installed here without a Neuron plugin"
        raise SettingError(setting, problem, "Use an image with the plugin (docs/neuron-lines.md), or set it to cpu.")


def with_model(plan: EnginePlan, model: Model) -> EnginePlan:
    """The plan with the model's local path. The model is served by its own names if no setting names it."""
    arguments: dict[str, Json] = {"served_model_name": list(model.names), **plan.engine_args, "model": model.path}
    return replace(plan, engine_args=arguments)
