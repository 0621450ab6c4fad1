"""Checks a compile on a host without Neuron devices, which VLLM_NEURON_CPU_COMPILE asks for.

Source: AWS Neuron documentation, vLLM Neuron, "CPU compilation" (SDK 2.31 - 2.33): graphs are compiled and not run,
the target must be named, and speculation is not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, warning
from handler.neuron.engine_plan import CPU_COMPILE, TARGET, compiles_only
from handler.neuron.lines.line import ConfigKeys

LATER: Final = "Compile on the Neuron instance: `compile --on` with its type."


def cpu_compile(context: CheckContext) -> Iterator[Finding]:
    env = context.config.neuron_env
    if not compiles_only(env):
        return
    if context.line.keys is not ConfigKeys.NATIVE:
        why = f"{context.line.name} compiles on Neuron devices only, and would ignore it"
        yield error("cpu-compile-line", CPU_COMPILE, why, "Set ENDPOINT_LINE to native-0.29, or remove it.")
        return
    if not context.draft.env.get(TARGET):
        why = "the compiler needs a target, and no instance is named"
        yield error("cpu-compile-target", CPU_COMPILE, why, "Set ENDPOINT_INSTANCE, for example to ml.trn2.48xlarge.")
    if "speculative_config" in context.draft.args:
        why = "a compile without Neuron devices has no speculation: the draft's graphs would be missing"
        yield error("cpu-compile-speculation", context.setting("speculation"), why, LATER)
    if not context.config.artifact_store:
        why = "what is compiled here would be lost"
        yield error("cpu-compile-store", CPU_COMPILE, why, "Set ENDPOINT_ARTIFACT_STORE.")
    why = "this container compiles, and serves no request"
    yield warning("cpu-compile", CPU_COMPILE, why, "Remove it from the settings of an endpoint.")


CPU_COMPILES: Final = (cpu_compile,)
