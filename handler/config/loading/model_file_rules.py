"""Holds the files beside a model to what describes the model. Which fields do, each field says where it is declared.

Whoever made the model wrote these files, and they come with it from a hub, a bucket or an archive. So they decide
nothing about trust, code, credentials, ports, stores, logging or limits, and name no place outside of the model's
directory. Arguments that hold others (`hf_overrides`, `additional_config`, `speculative_config` ...) are looked into.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from handler.config.field_metadata import ModelFile
from handler.config.fields import fields
from handler.config.sourced_assignment import SourcedAssignment
from handler.errors import SettingError

# Where SageMaker puts the model. A package's own settings name places below it.
MOUNT: Final = "/opt/ml/model"
# Keys inside of an argument that decide what only the owner decides, whatever their value, unless it is off.
_WORDS = "trust|code|plugin|plugins|cls|host|port|address|profiler|url|uri|auto_map|secret|log|logfile|endpoint"
NEVER: Final = re.compile(rf"(^|[_.-])({_WORDS})($|[_.-])")
# Keys whose value is a place, even if it does not look like one.
PLACES: Final = re.compile(r"(^|[_-])(dir|path|file|json|folder|root|model|tokenizer|checkpoint|cache)$")
LOCATION: Final = re.compile(r"\.{0,2}/|~|file:|.*(://|/\.\.)", re.DOTALL)
# Words of a compiler's or a runtime's options that write or read files.
FILES: Final = re.compile(r"/|\.\.|dir|file|path|dump|log|plugin", re.IGNORECASE)
# Listed keys that are places -> words that they take beside.
PLACE_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "generation_config": ("auto", "vllm"),
    "tokenizer": (),
    "NEURON_COMPILE_CACHE_URL": (),
}


def rejected(given: SourcedAssignment, directory: str, *, no_model: bool) -> SettingError | None:
    """The error for a setting that a file beside the model may not make; None if it may.

    :param directory: the model's directory or s3:// prefix.
    :param no_model: there is no model in the directory, so that the file may name one elsewhere: LMI's usual form.
    """
    one, field = given.assignment, fields().get(given.assignment.field)
    if field is None:  # `unused`
        return None
    kind = field.metadata.model_file
    problem = ""
    if kind is ModelFile.NEVER:
        problem = "it is the endpoint's, and files beside the model only describe the model"
    elif field.metadata.model_file_keys and one.key not in field.metadata.model_file_keys.split():
        problem = f"{one.key[:60]} is the endpoint's, and files beside the model only describe the model"
    elif one.field == "chat_template":
        problem = _template(str(one.value), directory)
    elif kind is ModelFile.INSIDE and not (one.field == "model" and no_model and _elsewhere(one.value)):
        outside = next((str(place) for _, place in _values(one.value) if not _inside(str(place), directory)), None)
        problem = "" if outside is None else _names(outside)
    elif one.field == "neuron_env" and one.key not in PLACE_WORDS:
        problem = _names(str(one.value)) if FILES.search(str(one.value)) else ""
    elif isinstance(one.value, dict) or one.field in ("engine_args", "neuron_config", "neuron_env"):
        problem = next(_nested(one.key, one.value, directory, listed=bool(field.metadata.model_file_keys)), "")
    if not problem:
        return None
    name = f"ENDPOINT_{one.field.upper()}"
    fix = f"Remove it. The endpoint's owner sets {name}, or its key in the document that ENDPOINT_CONFIG names."
    return SettingError(str(given.source), problem, fix)


def _nested(key: str, value: object, directory: str, *, listed: bool) -> Iterator[str]:
    """What a value may not say.

    :param listed: the key is one of those that the field allows, so that only the keys in its value are in question.
    """
    for path, item in _values(value, key):
        name, own = path[:100], listed and path == key
        if NEVER.search(path.lower()) and not own:
            yield f"{name} is the endpoint's, and files beside the model only describe the model"
        if not isinstance(item, str):
            continue
        place = key in PLACE_WORDS if own else bool(PLACES.search(path.rpartition(".")[2].lower()))
        if (place or LOCATION.match(item)) and item not in PLACE_WORDS.get(key, ()) and not _inside(item, directory):
            yield _names(item) if own else f"{name}: {_names(item)}"
        if "attn_implementation" in path and "/" in item:
            yield f"{name} fetches a kernel from a hub and runs it"


def _values(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value that is set in a value, with the path of keys to it. What is off is left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _values(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item, path)
    elif value and str(value).lower() not in ("false", "none", "0"):
        yield path, value


def _inside(place: str, directory: str) -> bool:
    place = place.removeprefix("file://")
    if ".." in PurePosixPath(place).parts:
        return False
    return any(place.startswith(f"{within.rstrip('/')}/") for within in (directory, MOUNT))


def _elsewhere(model: object) -> bool:
    """Whether a model is one of a hub or of S3. Another directory of this machine is the owner's to name."""
    return isinstance(model, str) and not model.startswith(("/", ".", "~", "file:"))


def _template(value: str, directory: str) -> str:
    """A template is the text, or the name of a file in the model's directory."""
    if any(mark in value for mark in "{}\n") or _inside(value, directory):
        return ""
    path = PurePosixPath(value)
    return _names(value) if path.is_absolute() or ".." in path.parts or value.startswith("~") else ""


def _names(place: str) -> str:
    return f"'{place[:100]}' is not inside the model's directory, and files beside the model name nothing outside of it"
