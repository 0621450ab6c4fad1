"""Rejects several nodes or several engines for one model, which no line of this container supports.

Sources: vllm-project/vllm-neuron, vllm_neuron/platform.py (the executor becomes `uni`) and worker/neuron_worker.py (a
world of one process); vLLM 0.16, vllm/v1/executor/multiproc_executor.py and entrypoints/cli/serve.py (`--headless`).
docs/scale.md has the details.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.json_value import Json
from handler.neuron.checks.check_context import CheckContext, error, warning
from handler.neuron.lines.line import ConfigKeys

HOSTED: Final = "ml."
# Arguments by which vLLM distributes an engine -> the largest value that does not distribute it.
PIPELINE: Final = "pipeline_parallel_size"
COUNTS: Final = {"nnodes": 1, PIPELINE: 1, "data_parallel_size": 1, "node_rank": 0}
ADDRESS: Final = "data_parallel_address"
BACKENDS: Final = ("ray", "external_launcher")
BACKEND: Final = "distributed_executor_backend"


def distribution(context: CheckContext) -> dict[str, Json]:
    """The given arguments that would distribute the engine over processes or nodes."""
    extra = context.config.engine_args
    found: dict[str, Json] = {}
    for name, single in COUNTS.items():
        value = extra.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > single:
            found[name] = value
    if extra.get(BACKEND) in BACKENDS:
        found[BACKEND] = extra[BACKEND]
    return found


def several_nodes(context: CheckContext) -> Iterator[Finding]:
    """Yields a finding for each argument that would distribute the engine."""
    given = distribution(context)
    hosted = (context.config.instance or "").startswith(HOSTED)
    if hosted and (context.config.nodes or 1) > 1:
        yield _alone(context, "nodes", context.config.nodes)
    if hosted and ADDRESS in context.config.engine_args:
        yield _alone(context, ADDRESS, context.config.engine_args[ADDRESS])
    for name, value in given.items():
        setting = context.setting(name)
        if name == "node_rank":
            why = f"this container serves requests, and node {value} of an engine serves none"
            yield error("several-nodes", setting, why, "Start further nodes with `neuron-endpoint node`.")
        elif name == "nnodes" and hosted:
            yield _alone(context, name, value)
        elif context.plugin and name == "data_parallel_size":
            why = "it was not tested whether the plugin gives each engine separate cores"
            yield warning(
                "several-engines", setting, why, "Run one engine in each container, and more instances or pods."
            )
        elif context.plugin:
            why = f"the plugin runs the whole model in one process, whatever {name} is"
            yield error("several-nodes", setting, why, "Remove it, and distribute the model with tensor_parallel_size.")
        elif context.line.keys is ConfigKeys.NATIVE and name in (PIPELINE, BACKEND):
            continue  # native_start rejects the one, and the plan replaces the other
        elif context.line.platforms:
            why = f"{name} is passed on, but it was not tested on {context.line.name}"
            yield warning("several-nodes", setting, why, "Remove it, or try a request before you rely on it.")


def _alone(context: CheckContext, name: str, value: Json) -> Finding:
    why = f"{name} is {shown(value)}, but the instances of an endpoint cannot reach each other: each is a single node"
    fix = "Use a larger instance, or a cluster outside SageMaker (docs/scale.md)."
    return error("several-nodes", context.setting(name), why, fix)


NODES: Final = (several_nodes,)
