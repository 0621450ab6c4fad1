"""Loads an `EndpointConfig` from the environment and the files that it names.

The sources, strongest first: the command line, the environment, the document that `ENDPOINT_CONFIG` names, the files in
the model directory (`endpoint.yaml`, `serving.properties`), the `neuron_config.json` of the compiled artifacts. The
line and the instance decide what no source sets. Two different values from equally strong sources are an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from handler.config.assignment import Assignment, assign, converted, sourced
from handler.config.dialects import container_variables as containers
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import lmi, vllm_names
from handler.config.dialects import neuron_variables as neuron
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import competing_keys, field_of_key, fields, named_keys
from handler.config.loading import network_isolation as isolation
from handler.config.loading.file_reader import Fetch
from handler.config.loading.file_reader import fetch as fetch_small_file
from handler.config.loading.model_file_rules import is_data
from handler.config.loading.setting_files import Setting, of_artifacts, of_model_directory, of_named_document
from handler.config.problems import SettingErrors, masked, reject_near_miss
from handler.config.secret_values import MASK, SHORTEST, has_secret_name, secrets_in
from handler.config.value_source import Origin, Overridden, ValueSource
from handler.config.values import clean
from handler.errors import SettingError

BASE = "/opt/ml"


class Dialect(Protocol):
    """A module of `handler.config.dialects` that translates variables."""

    def reads(self, name: str) -> bool: ...

    def translate(self, name: str, value: str) -> list[Assignment]: ...


DIALECTS: tuple[Dialect, ...] = (ours, vllm_names, lmi, containers, neuron)


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
    """An empty value counts as not set: deployment templates leave variables empty. Other images have empty flags."""
    for dialect in DIALECTS:
        if dialect.reads(name):
            if not value.strip() and dialect is not vllm_names:
                return []
            return dialect.translate(name, converted(clean, value, name))
    if name.startswith(containers.GUARDED_PREFIXES) or len(name) + 1 >= containers.GUARDED_LENGTH:
        reject_near_miss(name, containers.GUARDED, "a variable that this endpoint reads")
    if "NEURON" in name or name.startswith(("BASE_", "UNSAFE_")):
        reject_near_miss(name, neuron.KNOWN, neuron.WHAT)
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
    values = set(secrets_in(environ))
    for assignment in assignments:
        if _is_secret(assignment):
            values.add(str(assignment.value))
        values.update(secrets_in(assignment.value, assignment.key))
    return {value for value in values if len(value) >= SHORTEST}


def _is_secret(assignment: Assignment) -> bool:
    field = fields().get(assignment.field)
    return (field is not None and field.metadata.secret) or has_secret_name(assignment.key)


def merge(assignments: Iterable[Assignment]) -> tuple[dict[str, Any], list[SettingError]]:
    """The values of `EndpointConfig`'s fields, with their sources, and an error for every contradiction.

    A plan applies `neuron_config` last, so a raw key that has a field of its own competes with that field here:
    otherwise a weaker source's raw key would beat a stronger source's field.
    """
    assignments = sorted(assignments, key=lambda assignment: assignment.source.origin)
    strongest = {assignment.field: assignment for assignment in reversed(assignments)}
    rivals: dict[tuple[str, str], list[Assignment]] = {}
    unused: dict[str, str] = {}
    for assignment in chain.from_iterable(_parts(assignment, strongest) for assignment in assignments):
        if assignment.field == "unused":
            unused.setdefault(assignment.key, str(assignment.value))
        else:
            rivals.setdefault(_slot(assignment, strongest), []).append(assignment)
    sources: dict[str, ValueSource] = {}
    overridden: dict[str, tuple[Overridden, ...]] = {}
    values: dict[str, Any] = {"sources": sources, "overridden": overridden, "unused": unused}
    errors: list[SettingError] = []
    # The variable's own value comes first, then the flags that other settings add to it.
    for _, group in sorted(rivals.items(), key=lambda item: item[0][1]):
        winner, *others = group
        different = [other for other in others if _text(other) != _text(winner)]
        errors += [_conflict(winner, other) for other in different if other.source.origin is winner.source.origin]
        _put(values, winner)
        sources.setdefault(winner.target, winner.source)
        if different:
            overridden[winner.target] = tuple(Overridden(other.value, other.source) for other in different)
    return values, errors


def _parts(assignment: Assignment, strongest: Mapping[str, Assignment]) -> Iterator[Assignment]:
    """Takes global_topk out of a sampling object if a stronger source sets that field. The rest of the object stays."""
    field, value, source = strongest.get("global_topk", assignment), assignment.value, assignment.source
    sampling = assignment.target == "neuron_config.on_device_sampling_config"
    if sampling and isinstance(value, dict) and "global_topk" in value and field.source.origin < source.origin:
        inner = replace(source, name=f"{source.name}.global_topk")
        yield Assignment("global_topk", value["global_topk"], source=inner)
        value = {key: item for key, item in value.items() if key != "global_topk"}
    yield replace(assignment, value=value)


def _slot(assignment: Assignment, strongest: Mapping[str, Assignment]) -> tuple[str, str]:
    """Assignments with the same result compete for one value.

    :param strongest: of each field, the assignment of the strongest source.
    """
    if assignment.field == "neuron_config":
        name = competing_keys().get(assignment.key, assignment.key)
        rival = strongest.get(field_of_key().get(assignment.key, ""), assignment)
        weaker = rival.source.origin < assignment.source.origin
        # Equally strong, a key may differ from its field: batch_size is 1 in chunked prefill. One that only follows
        # from the field may say more than the field does, unless that turns the feature off.
        if weaker and (assignment.key in named_keys() or rival.value is False):
            name = rival.field
        field = fields().get(name)
        if field is not None and not field.metadata.merged:
            return field.name, ""
    return assignment.target, assignment.part


def _put(values: dict[str, Any], winner: Assignment) -> None:
    if not winner.key:
        values[winner.field] = winner.value
        return
    mapping = values.setdefault(winner.field, {})
    flags = winner.field == "neuron_env" and mapping.get(winner.key)
    mapping[winner.key] = f"{flags} {winner.value}" if flags else winner.value


def _text(assignment: Assignment) -> str:
    """The value as JSON, in which equal settings are equal: `8` of a field and `8` in NeuronConfig."""
    return json.dumps(assignment.value, sort_keys=True, default=str)


def _conflict(winner: Assignment, other: Assignment) -> SettingError:
    texts = (_text(other), _text(winner))
    short = [text if len(text) <= 80 else f"{text[:77]}..." for text in texts]
    value, winning = (MASK, MASK) if _is_secret(winner) else short
    return SettingError(str(other.source), f"is {value}, but {winner.source} is {winning}", "Keep one of the two.")
