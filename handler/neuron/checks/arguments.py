"""Checks engine arguments, and their values, against the vLLM version of the line, which would fail on unknown ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.engine_arguments import known, versions
from handler.config.finding import Finding
from handler.config.values import shown
from handler.neuron.checks.check_context import CheckContext, error


def argument_of_another_version(context: CheckContext) -> Iterator[Finding]:
    """Checks the arguments that the user gave. Those that the plan writes are the line's own."""
    version = context.vllm
    if version not in versions():
        return
    for name, value in context.draft.request.extra.items():
        about = known().get(name)
        if about is None or name not in context.draft.args:
            continue
        vllm = f"vLLM {version} ({context.line.title})"
        if version not in about.versions:
            why = f"{vllm} has no argument {name}; these versions have it: {', '.join(about.versions)}"
            yield error("argument-of-another-version", context.setting(name), why, "Remove it.")
            continue
        refused = about.refused(value, version)
        if refused is not None:
            fix = f"Give {', '.join(map(str, about.by_version[version]))}."
            yield error(
                "value-of-another-version", context.setting(name), f"{vllm} does not accept {shown(refused)}", fix
            )


ARGUMENTS: Final = (argument_of_another_version,)
