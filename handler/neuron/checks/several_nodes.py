"""Several nodes, or several engines, under one model: what no line that this container runs on carries out.

Sources: vllm-project/vllm-neuron, vllm_neuron/platform.py (the executor becomes `uni`) and worker/neuron_worker.py (a
world of one process); vLLM 0.16, vllm/v1/executor/multiproc_executor.py and entrypoints/cli/serve.py (`--headless`).
docs/scale.md tells the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.json_value import Json
from handler.neuron.checks.check_context import CheckContext, error, warning

HOSTED: Final = "ml."
# What vLLM spreads an engine by, and up to which value it does not.
COUNTS: Final = {"nnodes": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1, "node_rank": 0}
ADDRESS: Final = "data_parallel_address"
BACKENDS: Final = ("ray", "external_launcher")
BACKEND: Final = "distributed_executor_backend"


def spreading(case: CheckContext) -> dict[str, Json]:
    """The arguments by which the engine would be spread, of those that were given."""
    extra = case.draft.request.extra
    found: dict[str, Json] = {}
    for name, alone in COUNTS.items():
        value = extra.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > alone:
            found[name] = value
    if extra.get(BACKEND) in BACKENDS:
        found[BACKEND] = extra[BACKEND]
    return found


def several_nodes(case: CheckContext) -> Iterator[Finding]:
    """Each argument by its name."""
    given = spreading(case)
    hosted = (case.config.instance or "").startswith(HOSTED)
    if hosted and (case.config.nodes or 1) > 1:
        yield _alone(case, "nodes", case.config.nodes)
    if hosted and ADDRESS in case.draft.request.extra:
        yield _alone(case, ADDRESS, case.draft.request.extra[ADDRESS])
    for name, value in given.items():
        setting = case.setting(name)
        if name == "node_rank":
            why = f"node {value} of an engine serves no requests, and this container is what serves them"
            yield error("several-nodes", setting, why, "Start further nodes with `neuron-endpoint node`.")
        elif name == "nnodes" and hosted:
            yield _alone(case, name, value)
        elif case.plugin and name == "data_parallel_size":
            why = "whether the plugin gives each engine cores of its own was not seen"
            yield warning("several-engines", setting, why, "One engine a container, and more instances or pods.")
        elif case.plugin:
            why = f"the plugin runs the whole model in one process, whatever {name} says"
            yield error("several-nodes", setting, why, "Leave it out: tensor_parallel_size is what spreads the model.")
        elif case.line.platforms:
            why = f"{name} is passed on, and what {case.line.title} makes of it was not seen"
            yield warning("several-nodes", setting, why, "Leave it out, or try it on one request first.")


def _alone(case: CheckContext, name: str, value: Json) -> Finding:
    why = f"{name} is {shown(value)}, and an endpoint's instances do not know each other: each is one node"
    fix = "Use a larger instance, or a cluster (docs/scale.md)."
    return error("several-nodes", case.setting(name), why, fix)


NODES: Final = (several_nodes,)
