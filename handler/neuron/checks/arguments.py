"""Engine arguments that another version of vLLM has, and this line's does not: it would end on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.engine_arguments import known
from handler.neuron.checks.case import Case, error
from handler.neuron.finding import Finding

# The lines whose version of vLLM has a table (handler/config/vllm_arguments).
VERSIONS: Final = {"nxdi-0.16": "0.16.0", "cpu": "0.16.0", "fork-0.9.1": "0.9.1", "fork-0.7.2": "0.7.2"}


def argument_of_another_version(case: Case) -> Iterator[Finding]:
    """Only what was given as an engine argument; what the plan itself spells is the line's own."""
    version = VERSIONS.get(case.line.name)
    if version is None:
        return
    for name in case.draft.request.extra:
        about = known().get(name)
        if about is None or version in about.versions or name not in case.draft.args:
            continue
        why = f"vLLM {version}, the one of {case.line.title}, has no argument {name} ({', '.join(about.versions)} has)"
        yield error("argument-of-another-version", case.setting(name), why, "Leave it out.")


ARGUMENTS: Final = (argument_of_another_version,)
