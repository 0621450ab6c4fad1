"""Which parts beside vLLM's public interface are proven on which version. They use vLLM's internals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Accelerators:
    """What a version is run with, beside the public interface.

    :param direct: the queue and the gate are in front of each sequence, not of each call (`queued_requests`). Tokens
        take the direct path from the core's socket to their sink (`tokens/`).
    :param tool_streams: the streams of vLLM's tool parsers are completed. Their interface is that of 0.16.0.
    :param grammars: a request may have a grammar. On 0.11.0 one ends the core of a model in bfloat16: its kernel for
        the CPU takes float32 only.
    """

    direct: bool = False
    tool_streams: bool = False
    grammars: bool = True


PROVEN: Final[Mapping[str, Accelerators]] = {
    "0.11": Accelerators(grammars=False),
    "0.16": Accelerators(direct=True, tool_streams=True),
    "0.24": Accelerators(direct=True),
    "0.29": Accelerators(direct=True),
    "0.32": Accelerators(direct=True),
}


def accelerators(version: str) -> Accelerators | None:
    """:param version: vLLM's. None: it is not known here, and runs by the public interface."""
    return PROVEN.get(".".join(version.split(".")[:2]))
