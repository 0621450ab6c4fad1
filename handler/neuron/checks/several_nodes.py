"""Engines over several processes, nodes and instances, and the addresses by which they reach each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.json_value import Json, whole_number
from handler.neuron.checks.argument_pairs import EXECUTOR, LATER, Pair, broken_pairs
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.plan_draft import engines_here

# Arguments by which vLLM distributes an engine -> the largest value that does not distribute it.
PIPELINE: Final = "pipeline_parallel_size"
COUNTS: Final = {"nnodes": 1, PIPELINE: 1, "data_parallel_size": 1, "node_rank": 0}
ADDRESS: Final = "data_parallel_address"
LOCAL_ENGINES: Final = "data_parallel_size_local"
BACKENDS: Final = ("ray", "external_launcher")
DATA_BACKEND: Final = "data_parallel_backend"
NIXL_HOST: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"


def distribution(context: CheckContext) -> dict[str, Json]:
    """The given arguments that would distribute the engine over processes or nodes."""
    extra = context.config.engine_args
    found: dict[str, Json] = {}
    for name, single in COUNTS.items():
        value = whole_number(extra.get(name))
        if value is not None and value > single:
            found[name] = value
    if extra.get(EXECUTOR) in BACKENDS:
        found[EXECUTOR] = extra[EXECUTOR]
    return found


def several_nodes(context: CheckContext) -> Iterator[Finding]:
    """Yields a finding for each argument that would distribute the engine."""
    given = distribution(context)
    hosted, args, engines = context.hosted, context.config.engine_args, context.number("data_parallel_size")
    if hosted and (context.config.nodes or 1) > 1:
        yield _alone(context, "nodes", context.config.nodes)
    if hosted and ADDRESS in args:
        yield _alone(context, ADDRESS, args[ADDRESS])
    elif hosted and context.number(LOCAL_ENGINES, engines) < engines:
        yield _alone(context, LOCAL_ENGINES, args.get(LOCAL_ENGINES))
    elif hosted and engines > 1 and args.get("data_parallel_rank") is not None:
        yield _alone(context, "data_parallel_rank", args["data_parallel_rank"])
    elif ADDRESS in args and engines == engines_here(args) > 1 and LOCAL_ENGINES not in args and "nnodes" not in args:
        why = f"it has no effect: without {LOCAL_ENGINES} all {engines} engines run on this node, and no other joins it"
        yield warning(
            "several-engines", ADDRESS, why, f"Set {LOCAL_ENGINES} to the engines of each node, or remove it."
        )
    for name, value in given.items():
        setting = name
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
        elif context.line.keys is ConfigKeys.NATIVE and name in (PIPELINE, EXECUTOR):
            continue  # native_start rejects the one, and the plan replaces the other
        elif context.line.platforms:
            why = f"{name} is passed on, but it was not tested on {context.line.name}"
            yield warning("several-nodes", setting, why, "Remove it, or try a request before you rely on it.")


def _alone(context: CheckContext, name: str, value: Json) -> Finding:
    why = f"{name} is {shown(value)}, but the instances of an endpoint cannot reach each other: each is a single node"
    return error("several-nodes", name, why, "Use a larger instance, or a cluster outside SageMaker (docs/scale.md).")


def disaggregation(context: CheckContext) -> Iterator[Finding]:
    """Both sides need the other's address (examples/offline_inference/neuron_di.py of the fork; vllm/envs.py)."""
    if context.config.disaggregation is None:
        return
    setting = "disaggregation"
    if context.hosted:
        why = "a prefill and a decode instance must reach each other, and the instances of an endpoint cannot"
        yield error("several-nodes", setting, why, "Remove it, or use a cluster outside SageMaker (docs/scale.md).")
    elif context.line.keys is ConfigKeys.NATIVE and not context.draft.env.get(NIXL_HOST):
        why = f"the other side connects to {NIXL_HOST}, which is localhost if it is not set"
        yield info("disaggregation-without-address", setting, why, "Set it to this machine's address.")
    elif context.line.name.startswith("fork") and not context.draft.nested("kv_transfer_config").get("kv_ip"):
        why = "the address of the other side is not configured"
        yield error("disaggregation-without-address", setting, why, "Set kv_ip in kv_transfer_config.")


def _local_engines(context: CheckContext) -> str | None:
    local, engines = context.number("data_parallel_size_local", 0), context.number("data_parallel_size")
    return f"{local} is more than data_parallel_size ({engines})" if local > max(1, engines) else None


def _distant_engines(context: CheckContext) -> str | None:
    """vLLM waits without end for the engines of other nodes, at 127.0.0.1 if it has no address."""
    args, engines = context.draft.args, context.number("data_parallel_size")
    ranked = any(args.get(f"data_parallel_{name}") for name in ("external_lb", "hybrid_lb", "start_rank"))
    reached = any(args.get(name) is not None for name in (ADDRESS, "master_addr", "data_parallel_rank")) or ranked
    if reached or context.hosted or context.number("nnodes") > 1 or args.get(DATA_BACKEND) == "ray":
        return None
    local = context.number("data_parallel_size_local", engines)
    few = 0 <= local < engines
    return f"{local} of {engines} engines run here, and the others have no address of this node" if few else None


def _engine_rank(context: CheckContext) -> str | None:
    rank, engines = context.draft.number("data_parallel_rank"), context.number("data_parallel_size")
    if rank is None or (context.hosted and engines > 1):  # `several_nodes` says it
        return None
    return _external_engine(context) or (None if rank < engines else f"{rank} is not below {engines} engines")


def _external_balancer(context: CheckContext) -> str | None:
    args = context.draft.args
    ranked = args.get("data_parallel_rank") is not None
    if args.get("data_parallel_external_lb") is not True or ranked:
        return None
    by_node = context.number("nnodes") > 1
    return _external_engine(context) or (None if by_node else "it needs a data_parallel_rank")


def _external_engine(context: CheckContext) -> str | None:
    """One engine of several, with a front end of its own (vllm/engine/arg_utils.py; vllm/config/parallel.py)."""
    facts, version = context.facts, context.vllm
    if version not in ("0.16.0", "0.24.0", *LATER):
        return None
    if context.number("data_parallel_size") <= 1:
        return "it is for one of several engines, and data_parallel_size is not above 1"
    if version == "0.16.0" or facts is None or facts.experts:
        return None
    return f"vLLM {version} takes it for models with experts only. Serve others without data_parallel_*"


def _first_node(context: CheckContext) -> str | None:
    without = context.number("nnodes") > 1 and not context.draft.args.get("master_addr")
    if not without or context.plugin or context.hosted or context.draft.args.get("node_rank"):
        return None
    return "the first node has no address at which the others reach it: vLLM listens at 127.0.0.1 only"


def _nodes(context: CheckContext) -> str | None:
    nodes, args = context.number("nnodes"), context.draft.args
    ranks = math.prod(context.number(f"{name}_parallel_size") for name in ("data", "pipeline", "tensor"))
    if nodes <= 1 or context.plugin:
        return None
    if ranks % nodes:
        return f"the engine's ranks ({ranks}: data x pipeline x tensor parallel) cannot be divided by it ({nodes})"
    name = next((name for name in (DATA_BACKEND, EXECUTOR) if args.get(name) == "ray"), None)
    return f"{name} ray starts the nodes itself" if name else None


PAIRS: Final = (
    Pair("several-engines", "data_parallel_size_local", _local_engines),
    Pair(
        "distant-engines",
        "data_parallel_size_local",
        _distant_engines,
        "Remove it, or set data_parallel_address to the first node's address.",
    ),
    Pair("external-engine", "data_parallel_rank", _engine_rank),
    Pair("external-engine", "data_parallel_external_lb", _external_balancer),
    Pair("first-node", "nnodes", _first_node, "Set master_addr to the first node's address, the same on every node."),
    Pair("nodes-and-ranks", "nnodes", _nodes, "Change the degrees, or remove it."),
)


def unreached(context: CheckContext) -> Iterator[Finding]:
    """Settings of several nodes that vLLM rejects, or with which it waits for others without end."""
    yield from broken_pairs(context, PAIRS)


NODES: Final = (unreached, several_nodes, disaggregation)
