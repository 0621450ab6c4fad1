"""The variables that change what the compiler makes, in the one form that a key holds them in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from handler.artifacts.identity import key_exclusions as left_out
from handler.json_value import Json

FLAGS = ("NEURON_CC_FLAGS", "XLA_FLAGS")


def compile_environment(environ: Mapping[str, str], planned: Mapping[str, str]) -> dict[str, Json]:
    """Whichever of the process's variables the compiler and XLA read, and all that a plan sets, which win.

    What says where things are is left out, and what may be a secret (`left_out`).
    """
    compiler = {name: value for name, value in environ.items() if left_out.COMPILER.fullmatch(name)}
    found: dict[str, Json] = {}
    for name, value in {**compiler, **planned}.items():
        if name in left_out.ENVIRONMENT or left_out.SECRET.search(name):
            continue
        text = _flags(value) if name in FLAGS else value.strip()
        if text:
            found[name] = text
    return found


def _flags(text: str) -> str:
    """Compiler flags in their order, without those that say where things are."""
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
        if left_out.FLAGS.fullmatch(word.partition("=")[0]):
            skip = "=" not in word and bool(left_out.FLAGS_WITH_VALUE.fullmatch(word))
            continue
        kept.append(word)
    return shlex.join(kept)
