"""Checks the values of vLLM's own environment variables, which an engine's core reads all at the end of its start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from handler.config.values import shown
from handler.config.vllm_argument_table import variable_forms
from handler.errors import SettingError

NUMBERS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "int": (int, "a whole number; for a switch 1 or 0"),
    "float": (float, "a number"),
}

LOGGING = "VLLM_LOGGING_CONFIG_PATH"


def problems(environ: Mapping[str, str], version: str) -> Iterator[SettingError]:
    """An error for each value that this version of vLLM cannot read. An empty one is removed before it starts."""
    forms = variable_forms(version)
    for name in environ.keys() & forms.keys():
        value, form = environ[name], forms[name]
        if not value.strip():
            continue
        if isinstance(form, str):
            convert, fix = NUMBERS[form]
            try:
                convert(value)
                continue
            except ValueError:
                pass
        elif value in form or {value.lower(), value.upper()} <= {*form}:
            continue
        else:
            fix = ", ".join(word for word in form if word.islower() or word.lower() not in form)
        yield SettingError(name, f"{shown(value)} ends vLLM {version} when it starts", f"Give {fix}.")


def logging_problem(environ: Mapping[str, str], *, here: bool) -> SettingError | None:
    """What ends vLLM's import, which sets up its log (vllm/logger.py, 0.16 to 0.32).

    :param here: it starts on this machine, where the file is.
    """
    path = environ.get(LOGGING, "").strip()
    if not path:
        return None
    if environ.get("VLLM_CONFIGURE_LOGGING", "").strip() == "0":
        problem = f"vLLM ends where it is 0 and {LOGGING} is set"
        return SettingError("VLLM_CONFIGURE_LOGGING", problem, "Remove one of the two.")
    try:
        read = not here or isinstance(json.loads(Path(path).read_text(encoding="utf-8")), dict)
        problem = "" if read else "its file is no JSON object"
    except OSError as error:
        problem = f"its file cannot be read: {error.strerror}"
    except ValueError:
        problem = "its file is no JSON"
    fix = "Give the path of a dictionary for logging.config.dictConfig, as JSON, or remove it."
    return SettingError(LOGGING, f"{problem}, and vLLM ends", fix) if problem else None
