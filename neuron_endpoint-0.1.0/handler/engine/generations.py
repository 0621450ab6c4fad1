"""Which adapter runs the installed vLLM."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from handler.engine.contract import EngineGeneration
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.vllm_versions import public

# The first version of each generation, the newest first. The modules import vLLM.
GENERATIONS: Final = (
    ((0, 11), "handler.engine.v1.adapter"),
    ((0, 0), "handler.engine.v0.adapter"),
)


def generation(version: str | None = None) -> EngineGeneration:
    """The generation of a version of vLLM, with a public interface that this software knows.

    :param version: None: the installed one.
    """
    found = (version or public(installed_versions().get("vllm", ""))).split(".")[:2]
    number = tuple(map(int, found)) if len(found) == 2 and all(map(str.isdecimal, found)) else GENERATIONS[0][0]
    module = next(module for first, module in GENERATIONS if number >= first)
    return cast(EngineGeneration, import_module(module))
