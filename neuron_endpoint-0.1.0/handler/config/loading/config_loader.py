"""Loads an `EndpointConfig` from the environment and the files that it names.

The sources, strongest first: the command line, the environment, the document that `ENDPOINT_CONFIG` names, the files in
the model directory (`endpoint.yaml`, `serving.properties`), the `neuron_config.json` of the compiled artifacts. The
line and the instance decide what no source sets. Two different values from equally strong sources are an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from handler.config.dialects import container_variables as containers
from handler.config.dialects import endpoint_variables as ours
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading import network_isolation as isolation
from handler.config.loading.file_reader import Fetch
from handler.config.loading.file_reader import fetch as fetch_small_file
from handler.config.loading.merge import Merged, merge
from handler.config.loading.model_file_rules import is_data
from handler.config.loading.setting_files import Found, of_artifacts, of_model_directory, of_named_document
from handler.config.loading.variable_translation import translate_model, translate_variable
from handler.config.problems import SettingErrors, masked
from handler.config.sourced_assignment import SourcedAssignment, sourced
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError

BASE = "/opt/ml"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ENDPOINT_HF_TOKEN", "SM_VLLM_HF_TOKEN", "OPTION_HF_TOKEN")


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
    assignments: list[SourcedAssignment] = []

    def take(found: Iterable[Found]) -> None:
        for one in found:
            if isinstance(one, SourcedAssignment):
                assignments.append(_with_path(one))
            else:
                errors.append(one)

    if model is not None:
        take(sourced({"MODEL": model}, translate_model, Origin.ARGUMENT))
    variables = {name: environ[name] for name in sorted(environ) if name != ours.CONFIG}
    take(sourced(variables, translate_variable, Origin.ENVIRONMENT))
    take(of_named_document(document, fetch))
    base = environ.get(containers.BASE, "").strip() or BASE
    take(of_model_directory(_named(assignments, "model") or f"{base}/model", f"{base}/model", fetch))
    take(of_artifacts(_named(assignments, "compiled_artifacts"), fetch))
    if Origin.MODEL_FILE in [one.source.origin for one in assignments if one.assignment.field == "compiled_artifacts"]:
        # The artifacts came with the model, so that they name no places either.
        assignments = [one for one in assignments if one.source.origin is not Origin.ARTIFACTS or is_data(one)]
    merged = merge(assignments)
    secrets = _secrets(environ, assignments)
    problems = [masked(error, secrets) for error in (*errors, *merged.errors)]
    if problems:
        raise SettingErrors(problems)
    config = _config(merged, environ, base)
    conflicts = [masked(error, secrets) for error in isolation.problems(config)]
    if conflicts:
        raise SettingErrors(conflicts)
    return config


def _with_path(found: SourcedAssignment) -> SourcedAssignment:
    """The same with a plain path for a model at `file:///directory`, which is used in place."""
    value = found.assignment.value
    if found.assignment.field != "model" or not isinstance(value, str) or not value.startswith("file:///"):
        return found
    return replace(found, assignment=replace(found.assignment, value=unquote(urlsplit(value).path)))


def _named(assignments: Iterable[SourcedAssignment], field: str) -> str | None:
    """The strongest value so far. It decides which files are read."""
    found = sorted((one for one in assignments if one.assignment.field == field), key=lambda one: one.source.origin)
    return str(found[0].assignment.value) if found and found[0].assignment.value else None


def _secrets(environ: Mapping[str, str], assignments: Iterable[SourcedAssignment]) -> set[str]:
    found = {environ.get(name, "").strip() for name in SECRETS}
    found |= {str(one.assignment.value) for one in assignments if one.assignment.field == "hf_token"}
    return {secret for secret in found if len(secret) > 3}


def _config(merged: Merged, environ: Mapping[str, str], base: str) -> EndpointConfig:
    values: dict[str, Any] = {name: value for name, value in merged.values.items() if value is not None}
    sources = dict(merged.sources)
    if "model" not in values:
        values["model"] = f"{base}/model"
        if environ.get(containers.BASE, "").strip():
            sources["model"] = ValueSource(Origin.ENVIRONMENT, containers.BASE)
    return EndpointConfig(**values, sources=sources, overridden=merged.overridden, unused=merged.unused)
