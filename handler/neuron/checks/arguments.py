"""Engine arguments, and values of them, that another version of vLLM takes and this line's does not: it would end on
them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.engine_arguments import known, versions
from handler.config.finding import Finding
from handler.config.values import shown
from handler.neuron.checks.check_context import CheckContext, error


def argument_of_another_version(case: CheckContext) -> Iterator[Finding]:
    """Only what was given as an engine argument; what the plan itself spells is the line's own."""
    version = case.vllm
    if version not in versions():
        return
    for name, value in case.draft.request.extra.items():
        about = known().get(name)
        if about is None or name not in case.draft.args:
            continue
        whose = f"vLLM {version}, the one of {case.line.title},"
        if version not in about.versions:
            why = f"{whose} has no argument {name} ({', '.join(about.versions)} has)"
            yield error("argument-of-another-version", case.setting(name), why, "Leave it out.")
            continue
        refused = about.refused(value, version)
        if refused is not None:
            fix = f"Give {', '.join(map(str, about.by_version[version]))}."
            yield error("value-of-another-version", case.setting(name), f"{whose} does not take {shown(refused)}", fix)


ARGUMENTS: Final = (argument_of_another_version,)
