"""The environment variables that change the compiled graph, in the canonical form that a key uses."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from handler.artifacts.identity import key_exclusions
from handler.json_value import Json

FLAGS = ("NEURON_CC_FLAGS", "XLA_FLAGS")


def compile_environment(environ: Mapping[str, str], planned: Mapping[str, str]) -> dict[str, Json]:
    """Returns the process's variables that the compiler and XLA read, and all that the plan sets. The plan wins.

    Variables that hold paths and possible secrets are excluded (`key_exclusions`).
    """
    compiler = {name: value for name, value in environ.items() if key_exclusions.COMPILER.fullmatch(name)}
    found: dict[str, Json] = {}
    for name, value in {**compiler, **planned}.items():
        if name in key_exclusions.ENVIRONMENT or key_exclusions.SECRET.search(name):
            continue
        text = _flags(value) if name in FLAGS else value.strip()
        if text:
            found[name] = text
    return found


def _flags(text: str) -> str:
    """Returns compiler flags in their order, without those that name paths."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept: list[str] = []
    skip = False
    for word in words:
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = False
        if key_exclusions.FLAGS.fullmatch(word.partition("=")[0]):
            skip = "=" not in word and bool(key_exclusions.FLAGS_WITH_VALUE.fullmatch(word))
            continue
        kept.append(word)
    return shlex.join(kept)
