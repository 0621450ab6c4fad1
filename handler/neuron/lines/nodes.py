"""Writes disaggregated inference and several nodes for the legacy fork.

Sources: aws-neuron/upstreaming-to-vllm, branch neuron-2.24-vllm-v0.7.2, examples/offline_inference/neuron_di.py and
examples/neuron/multi_node/launch_script.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft

ROLES: Final = {"prefill": "kv_producer", "decode": "kv_consumer"}
BOOTSTRAP: Final = {
    "NEURON_RT_ASYNC_SENDRECV_EXPERIMENTAL_ENABLED": "1",
    "NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT": "45645",
}
ROOT_PORT: Final = 63423


def spell_transfer(draft: PlanDraft, transfer: Mapping[str, Json]) -> bool:
    """Writes one side of a pair of disaggregated inference, if a role is configured. An unknown one is an error.

    :param transfer: the line's `kv_transfer_config`. The user's own gives the addresses (`kv_ip`, `kv_port`).
    """
    role = draft.config.disaggregation
    if role in ROLES:
        own = draft.nested("kv_transfer_config")
        if own.get("kv_role", ROLES[role]) not in (ROLES[role], "kv_both"):
            draft.conflict("kv_transfer_config.kv_role", own["kv_role"], "disaggregation", role)
        draft.args["kv_transfer_config"] = {**transfer, "kv_role": ROLES[role], **own}
    elif role is not None:
        why = f"'{role[:40]}' is not a role of disaggregated inference"
        draft.error("unknown-role", "disaggregation", why, "Use prefill or decode.")
    return role in ROLES


def spell_disaggregation(draft: PlanDraft) -> None:
    rank = int(draft.config.disaggregation == "decode")
    transfer: dict[str, Json] = {"kv_connector": "NeuronConnector", "kv_buffer_device": "cpu", "kv_buffer_size": 1e9}
    transfer |= {"kv_rank": rank, "kv_role": "", "kv_parallel_size": 2}
    if not spell_transfer(draft, transfer):
        return
    for variable, value in BOOTSTRAP.items():
        draft.env.setdefault(variable, value)


def spell_nodes(draft: PlanDraft) -> None:
    """Writes the ranks of this node as the fork's launcher does. The environment has the node's rank and the master."""
    nodes, local = draft.config.nodes, draft.number("tensor_parallel_size")
    if nodes is None or nodes <= 1 or local is None:
        return
    rank = draft.env.get("NEURON_RANK_ID", "0")
    if not (rank.isascii() and rank.isdigit()) or int(rank) >= nodes:
        why = f"'{rank[:20]}' is not a rank of {nodes} nodes"
        draft.error("unknown-rank", "NEURON_RANK_ID", why, f"Give a number from 0 to {nodes - 1}.")
        return
    ranks: dict[str, Json] = {
        "world_size": nodes * local,
        "tp_degree": local,
        "local_ranks_size": local,
        "start_rank_id": int(rank) * local,
    }
    for key, value in ranks.items():
        draft.override.setdefault(key, value)
    draft.env.update(
        {
            "ENABLE_NEURON_MULTI_NODE": "true",
            "WORLD_SIZE": str(nodes),
            "NEURON_LOCAL_TP": str(local),
            "NEURON_RANK_ID": rank,
        }
    )
    master = draft.env.get("MASTER_ADDR")
    if master is None:
        why = "the nodes find each other by the address of the first node"
        draft.error("nodes-without-master", "MASTER_ADDR", why, "Set MASTER_ADDR on every node.")
        return
    draft.env.setdefault("NEURON_RT_ROOT_COMM_ID", f"{master}:{ROOT_PORT}")
