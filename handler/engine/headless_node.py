"""The command line of a further node of a multi-node engine: `vllm serve --headless`, workers without a front end.

Sources, vLLM 0.16: entrypoints/cli/serve.py (`--headless`), v1/executor/multiproc_executor.py.
This module does not import vLLM.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping

from handler.errors import SettingError
from handler.json_value import Json

# Fixes of V1's CPU worker. All workers of an engine must have the same extension.
CPU_WORKER_FIXES = "handler.engine.v1.cpu_worker.CpuWorkerFixes"
NODES = "nnodes"
DATA_PARALLEL = "data_parallel_size"
LOCAL = "data_parallel_size_local"
# How the nodes are counted -> where the first one is. vLLM takes the next for one that is not given.
MASTER = {NODES: ("master_addr",), DATA_PARALLEL: ("data_parallel_address", "master_addr")}
RESOLVE_SECONDS = 300.0
# As the program `vllm`, which is not on every path.
PROGRAM = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve")
# Flags of vLLM's command line (0.16 to 0.32) that have no negated form: false is to leave them out.
POSITIVE = frozenset(("disable_log_stats", "aggregate_engine_logging", "data_parallel_multi_port_external_lb"))


def headless_words(arguments: Mapping[str, Json], rank: int, *, line: str, resolve: Callable[[str], str]) -> list[str]:
    """The command line of node `rank`, made from the engine arguments of the first node.

    :param rank: the node's number, from 1 on.
    :param resolve: gives the IP address of a host name.
    :raises SettingError: the settings do not describe several nodes, or not so many.
    """
    mode = next((name for name in MASTER if _number(arguments.get(name)) > 1), None)
    address = next((name for name in MASTER.get(mode or "", ()) if isinstance(arguments.get(name), str)), None)
    if mode is None or address is None:
        fix = "Set SM_VLLM_NNODES and SM_VLLM_MASTER_ADDR, the same on every node."
        raise SettingError(NODES, "the settings do not give the number of nodes and the address of the first one", fix)
    local = 1 if mode == NODES else _number(arguments.get(LOCAL))
    if local < 1:
        raise SettingError(LOCAL, "the settings do not give the engines of a node", "Set it, the same on every node.")
    if (rank + 1) * local > (total := _number(arguments[mode])):
        problem = f"{rank} is not the rank of a node: {mode} is {total}" + f", {local} on each" * (mode != NODES)
        raise SettingError("--rank", problem, f"Give at most {total // local - 1}.")
    name = "node_rank" if mode == NODES else "data_parallel_start_rank"
    here: dict[str, Json] = {address: resolve(str(arguments[address])), name: rank * local}
    if line == "cpu":
        here.setdefault("worker_extension_cls", CPU_WORKER_FIXES)
    words = [*PROGRAM, str(arguments["model"]), "--headless"]
    for name, value in {**arguments, **here}.items():
        if name in POSITIVE and value is False:
            continue
        if name not in ("model", "served_model_name") and value is not None:
            option = option_words(name, value)
            words += option if isinstance(value, list) else ["=".join(option)]
    return words


def address_of(name: str, clock: Callable[[], float] = time.monotonic) -> str:
    """The address of a host name, by IPv6 if it has none by IPv4. vLLM binds to it, and cannot bind to a name.

    Waits for the name, because a pod's name is not in DNS from the beginning.

    :raises SettingError: the name has no address after RESOLVE_SECONDS, or is no host name.
    """
    began = clock()
    while True:
        try:
            addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            return str(min(addresses, key=lambda address: address[0] != socket.AF_INET)[4][0])
        except (OSError, ValueError) as error:  # ValueError: the name is none, and will never have an address
            if isinstance(error, ValueError) or clock() - began > RESOLVE_SECONDS:
                problem = f"'{name[:100]}' has no address ({error})"
                raise SettingError(MASTER[NODES][0], problem, "Give the first node's name or address.") from None
            time.sleep(1.0)


def _number(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def option_words(name: str, value: Json) -> list[str]:
    """One engine argument as words of vLLM's command line. None has no words."""
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    if isinstance(value, list):
        return [option, *(item if isinstance(item, str) else json.dumps(item) for item in value)]
    return [option, value if isinstance(value, str) else json.dumps(value)]
