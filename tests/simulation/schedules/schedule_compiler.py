"""The simulated compiler: how a compile ends, and what it leaves. The cause is read by the product's own code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.compile_failure_cause import compile_failure
from tests.simulation.schedules.schedule import Cause

FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"
# Of each cause: the exit status of the engine's core, and the end of its log.
ENDS = {
    Cause.REJECTED: (1, "ERROR: [NCC_EBVF030] too many instructions\nRuntimeError: neuronx-cc: exit status 70\n"),
    Cause.CRASHED: (1, "RuntimeError: Failed compilation with neuronx-cc: exit status 70\n"),
    Cause.SEGFAULT: (-11, ""),
    Cause.MEMORY: (1, "RuntimeError: [F137] neuronx-cc was forcibly killed\n"),
    Cause.SIGKILL: (-9, ""),
    Cause.SIGTERM: (0, ""),
}


def fail(cause: Cause) -> None:
    """Raises what a start of the engine raises that ends like this."""
    status, log = ENDS[cause]
    raise compile_failure(RuntimeError(FAILED), [status], log)


def artifacts(keys: Sequence[ArtifactKey], compiler: str) -> dict[str, str]:
    """The files of a compile, by path. The graph says who compiled it; the weights are the same in every compile."""
    graph, weights = (key.digest for key in keys)
    shard = "weights/tp0_sharded_checkpoint.safetensors"
    return {"model.pt": f"{graph} by {compiler}", shard: f"{weights} of rank 0"}


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
