"""Holds the files beside a model to what describes the model. Each field says, where it is declared, which kind it is.

Whoever made the model wrote these files. So they decide nothing about trust, code, credentials, ports, stores, logging
or limits, and name no place outside of the model's directory, not inside of another argument either (`hf_overrides`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from handler.config.assignment import Assignment
from handler.config.field_metadata import ModelFile
from handler.config.fields import fields
from handler.errors import SettingError

# Where SageMaker puts the model. A package's own settings name places below it.
MOUNT: Final = "/opt/ml/model"
# Keys inside of an argument that only the owner sets, unless they are off; and those whose value is a place.
_WORDS = "trust|code|plugin|plugins|cls|host|port|address|profiler|url|uri|auto_map|secret|log|logfile|endpoint"
OWNERS: Final = re.compile(rf"(^|[_.-])({_WORDS})($|[_.-])")
PLACES: Final = re.compile(r"(^|[_.-])(dir|path|file|json|folder|root|model|tokenizer|checkpoint|cache)$")
LOCATION: Final = re.compile(r"\.{0,2}/|~|file:|.*(://|/\.\.)", re.DOTALL)
# What writes or reads files, in the options of a compiler or a runtime.
FILES: Final = re.compile(r"/|\.\.|dir|file|path|dump|log|plugin", re.IGNORECASE)
# Listed keys that are places -> words that they take beside.
PLACE_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{"generation_config": ("auto", "vllm"), "tokenizer": (), "NEURON_COMPILE_CACHE_URL": ()},
}
OF_THE_OWNER: Final = "is the endpoint's, and files beside the model only describe the model"


def is_data(assignment: Assignment) -> bool:
    """Whether the field describes the model."""
    return fields()[assignment.field].metadata.model_file is ModelFile.DATA


def rejected(assignment: Assignment, directory: str, has_model: Callable[[], bool]) -> SettingError | None:
    """The error for a setting that a file beside the model may not make; None if it may.

    :param directory: the model's directory or s3:// prefix.
    :param has_model: whether there is a model in it. If not, the file may name one elsewhere: LMI's usual form.
    """
    problem = next(_problems(assignment, directory, has_model), None)
    name = f"ENDPOINT_{assignment.field.upper()}"
    fix = f"Remove it. The endpoint's owner sets {name}, or its key in the document that ENDPOINT_CONFIG names."
    return None if problem is None else SettingError(str(assignment.source), problem, fix)


def _problems(assignment: Assignment, directory: str, has_model: Callable[[], bool]) -> Iterator[str]:
    field, key, value = fields().get(assignment.field), assignment.key, assignment.value
    if field is None:  # `unused`
        return
    kind, listed, text = field.metadata.model_file, field.metadata.model_file_keys.split(), str(value)
    if kind is ModelFile.NEVER or (listed and key not in listed):
        yield f"{key[:60] or 'it'} {OF_THE_OWNER}"
    elif assignment.field == "chat_template":
        # The text, or the name of a file in the directory.
        if not any(mark in text for mark in "{}\n") and (LOCATION.match(text) or ".." in PurePosixPath(text).parts):
            yield from _outside(text, directory)
    elif kind is ModelFile.INSIDE:
        elsewhere = assignment.field == "model" and not re.match(r"[/.~]|file:", text) and not has_model()
        for _, place in () if elsewhere else values_in(value):
            yield from _outside(str(place), directory)
    elif assignment.field == "neuron_env" and key not in PLACE_WORDS:
        yield from [f"'{text[:100]}' may write or read files"] if FILES.search(text) else ()
    elif isinstance(value, dict) or key:
        for path, inner in values_in(value, key):
            own = bool(listed) and path == key  # a key that the field lists: what it holds is in question
            if OWNERS.search(path.lower()) and not own:
                yield f"{path[:100]} {OF_THE_OWNER}"
            if not isinstance(inner, str) or inner in PLACE_WORDS.get(key, ()):
                continue
            if LOCATION.match(inner) or (path in PLACE_WORDS if own else PLACES.search(path.lower())):
                yield from _outside(inner, directory)
            if "attn_implementation" in path and "/" in inner:
                yield f"{path[:100]} fetches a kernel from a hub and runs it"


def values_in(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value that is set in a value, with the path of keys to it. What is off is left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from values_in(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from values_in(item, path)
    elif value and str(value).lower() not in ("false", "none", "0"):
        yield path, value


def _outside(place: str, directory: str) -> Iterator[str]:
    plain = place.removeprefix("file://")
    within = any(plain.startswith(f"{root.rstrip('/')}/") for root in (directory, MOUNT))
    if not within or ".." in PurePosixPath(plain).parts:
        yield f"'{place[:100]}' is outside of the model's directory, and files beside the model name nothing there"
