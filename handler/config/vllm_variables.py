"""Checks the values of vLLM's own environment variables, which an engine's core reads all at the end of its start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from handler.config.values import shown
from handler.config.vllm_argument_table import variable_forms
from handler.errors import SettingError

NUMBERS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "int": (int, "a whole number; for a switch 1 or 0"),
    "float": (float, "a number"),
}


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
