"""A further node of an engine: vLLM's own workers without a front end, which the first node's `serve` reaches.

vLLM 0.16: entrypoints/cli/serve.py (`--headless`), v1/executor/multiproc_executor.py. This module imports no vLLM.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping

from handler.errors import SettingError
from handler.json_value import Json

# Fixes 0.16's CPU worker; the workers of an engine must have the same.
GRAMMARS_ON_CPU = "handler.engine.vllm_api.core.cpu_grammar.GrammarsOnCpu"
SPREAD = "nnodes"
ENGINES = "data_parallel_size"
MASTER = {SPREAD: "master_addr", ENGINES: "data_parallel_address"}
NAMED_WITHIN = 300.0


def headless_words(
    arguments: Mapping[str, Json], rank: int, *, line: str, version: str, resolve: Callable[[str], str]
) -> list[str]:
    """The command line of node `rank`, from the arguments that the first node's engine has.

    :param rank: from 1 on. :param version: vLLM's. :param resolve: the address of a name.
    :raises SettingError: the settings name no other node.
    """
    how = next((name for name in MASTER if _number(arguments.get(name)) > 1), None)
    if how is None or not isinstance(arguments.get(MASTER[how]), str):
        fix = "Set SM_VLLM_NNODES and SM_VLLM_MASTER_ADDR, the same on every node."
        raise SettingError(SPREAD, "the settings say nothing of several nodes and where the first one is", fix)
    address = resolve(str(arguments[MASTER[how]]))
    here: dict[str, Json] = {MASTER[how]: address}
    if how == SPREAD:
        here["node_rank"] = rank
    else:
        here["data_parallel_start_rank"] = rank * max(1, _number(arguments.get("data_parallel_size_local")))
    if line == "cpu" and version.startswith("0.16."):
        here.setdefault("worker_extension_cls", GRAMMARS_ON_CPU)
    words = ["vllm", "serve", str(arguments["model"]), "--headless"]
    for name, value in {**arguments, **here}.items():
        if name not in ("model", "served_model_name"):
            words += _words(name, value)
    return words


def address_of(name: str, clock: Callable[[], float] = time.monotonic) -> str:
    """Its IPv4 address; vLLM binds to it, and a name cannot be bound to. A pod's name takes a while to be known.

    :raises SettingError: it stays unknown.
    """
    began = clock()
    while True:
        try:
            return socket.gethostbyname(name)
        except OSError as error:
            if clock() - began > NAMED_WITHIN:
                problem = f"'{name[:100]}' has no address ({error})"
                raise SettingError(MASTER[SPREAD], problem, "Give the first node's name or address.") from None
            time.sleep(1.0)


def _number(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _words(name: str, value: Json) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    if isinstance(value, list):
        return [option, *(item if isinstance(item, str) else json.dumps(item) for item in value)]
    return [f"{option}={value if isinstance(value, str) else json.dumps(value)}"]
