"""What an endpoint was asked to be: one frozen value, made once, passed to whoever needs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EngineArgument:
    """One vLLM engine argument as vLLM's own command line would take it, and the setting it came from.

    `values` holds none for a flag, one for a value, several for an argument that repeats.
    """

    name: str
    values: tuple[str, ...]
    setting: str

    def argv(self) -> tuple[str, ...]:
        """The argument in vLLM's spelling: `--max-num-seqs 64`."""
        return (f"--{self.name.replace('_', '-')}", *self.values)


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """The endpoint's settings. Lengths of time in seconds, sizes in bytes.

    :param model: a local directory, `s3://bucket/prefix`, or a hub id.
    :param model_setting: where `model` was read from, for messages.
    :param scratch: a writable directory; `/opt/ml/model` is read-only on SageMaker.
    :param port: 8080 unless SAGEMAKER_BIND_TO_PORT says otherwise.
    :param max_concurrent: requests in flight at once; one more gets 429.
    :param max_body: 25 MB is SageMaker's own limit for a regular invocation.
    :param drain: how long running requests may go on after SIGTERM; SIGKILL comes 30 s after it.
    :param stall: how long an engine may take to answer a health question before /ping turns to 500.
    :param engine_restarts: how many times a failed engine is replaced before the process gives up.
    """

    model: str
    model_setting: str
    engine_arguments: tuple[EngineArgument, ...] = ()
    scratch: Path = field(default=Path("/tmp/neuron-endpoint"))  # noqa: S108  SageMaker's instance store
    port: int = 8080
    max_concurrent: int = 1024
    max_body: int = 25 * MIB
    drain: float = 25.0
    stall: float = 6.0
    engine_restarts: int = 3
    log_requests: bool = False
