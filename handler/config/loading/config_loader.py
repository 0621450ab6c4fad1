"""Loads an `EndpointConfig` from the environment and the files that it names.

The sources, strongest first: the command line, the environment, the document that `ENDPOINT_CONFIG` names, the files in
the model directory (`endpoint.yaml`, `serving.properties`), the `neuron_config.json` of the compiled artifacts. The
line and the instance decide what no source sets. Two different values from equally strong sources are an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote, urlsplit

from handler.config.assignment import Assignment, assign, converted, sourced
from handler.config.dialects import container_variables as containers
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi, server_arguments
from handler.config.dialects import neuron_variables as neuron
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading import network_isolation as isolation
from handler.config.loading.file_reader import Fetch
from handler.config.loading.file_reader import fetch as fetch_small_file
from handler.config.loading.merge import merge
from handler.config.loading.model_file_rules import is_data
from handler.config.loading.setting_files import Setting, of_artifacts, of_model_directory, of_named_document
from handler.config.problems import SettingErrors, masked
from handler.config.value_source import Origin, ValueSource
from handler.config.values import clean
from handler.errors import SettingError

BASE = "/opt/ml"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ENDPOINT_HF_TOKEN", "SM_VLLM_HF_TOKEN", "OPTION_HF_TOKEN")


class Dialect(Protocol):
    """A module of `handler.config.dialects` that translates variables."""

    def reads(self, name: str) -> bool: ...

    def translate(self, name: str, value: str) -> list[Assignment]: ...


DIALECTS: tuple[Dialect, ...] = (ours, server_arguments, lmi, containers, neuron)


def load(environ: Mapping[str, str], *, fetch: Fetch = fetch_small_file, model: str | None = None) -> EndpointConfig:
    """The configuration from an environment and the files that it names.

    :param fetch: reads one small file or object. Nothing else is read.
    :param model: the model that the command line names. It beats every other source.
    :raises SettingErrors: holds every problem, each with its setting and its fix. Secrets are masked.
    """
    if isolation.isolated(environ):
        fetch = isolation.without_network(fetch)
    errors: list[SettingError] = []
    document = environ.get(ours.CONFIG, "").strip()
    if isolation.isolated(environ) and isolation.is_remote(document, hub=False):
        errors.append(isolation.problem(ours.CONFIG, document))
        document = ""
    assignments: list[Assignment] = []

    def take(settings: Iterable[Setting]) -> None:
        for setting in settings:
            if isinstance(setting, Assignment):
                assignments.append(_with_path(setting))
            else:
                errors.append(setting)

    if model is not None:
        take(sourced({"MODEL": model}, _translate_model, Origin.ARGUMENT))
    variables = {name: environ[name] for name in sorted(environ) if name != ours.CONFIG}
    take(sourced(variables, translate_variable, Origin.ENVIRONMENT))
    take(of_named_document(document, fetch))
    base = environ.get(containers.BASE, "").strip() or BASE
    take(of_model_directory(_strongest(assignments, "model") or f"{base}/model", f"{base}/model", fetch))
    take(of_artifacts(_strongest(assignments, "compiled_artifacts"), fetch))
    if any(each.field == "compiled_artifacts" and each.source.origin is Origin.MODEL_FILE for each in assignments):
        # The artifacts came with the model, so that they name no places either.
        assignments = [each for each in assignments if each.source.origin is not Origin.ARTIFACTS or is_data(each)]
    values, contradictions = merge(assignments)
    secrets = _secrets(environ, assignments)
    problems = [masked(error, secrets) for error in (*errors, *contradictions)]
    if problems:
        raise SettingErrors(problems)
    if values.get("model") is None:
        values["model"] = f"{base}/model"
        if environ.get(containers.BASE, "").strip():
            values["sources"]["model"] = ValueSource(Origin.ENVIRONMENT, containers.BASE)
    config = EndpointConfig(**{name: value for name, value in values.items() if value is not None})
    conflicts = [masked(error, secrets) for error in isolation.problems(config)]
    if conflicts:
        raise SettingErrors(conflicts)
    return config


def translate_variable(name: str, value: str) -> list[Assignment]:
    """An empty value counts as not set: deployment templates leave variables empty. For optimum-neuron it is a flag."""
    for dialect in DIALECTS:
        if dialect.reads(name):
            if not value.strip() and not name.startswith(server_arguments.OPTIMUM_PREFIX):
                return []
            return dialect.translate(name, converted(clean, value, name))
    containers.reject_misspelling(name)
    if "NEURON" in name or name.startswith(("BASE_", "UNSAFE_")):
        neuron.reject_misspelling(name)
    return []


def _translate_model(name: str, value: str) -> list[Assignment]:
    return [assign("model", converted(clean, value, name), name)]


def _with_path(assignment: Assignment) -> Assignment:
    """The same with a plain path for a model at `file:///directory`, which is used in place."""
    value = assignment.value
    if assignment.field != "model" or not isinstance(value, str) or not value.startswith("file:///"):
        return assignment
    return replace(assignment, value=unquote(urlsplit(value).path))


def _strongest(assignments: Iterable[Assignment], field: str) -> str | None:
    """The strongest value so far. It decides which files are read."""
    rivals = [assignment for assignment in assignments if assignment.field == field]
    value = min(rivals, key=lambda assignment: assignment.source.origin).value if rivals else None
    return str(value) if value else None


def _secrets(environ: Mapping[str, str], assignments: Iterable[Assignment]) -> set[str]:
    values = {environ.get(name, "").strip() for name in SECRETS}
    values |= {str(assignment.value) for assignment in assignments if assignment.field == "hf_token"}
    return {value for value in values if len(value) > 3}
