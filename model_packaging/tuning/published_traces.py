"""Request lengths like those of published traces, drawn from their quantiles: `trace:chat`, `trace:code` ...

The file has each trace's source, its moments, and the lengths at each twentieth of its requests. Prompt and output are
drawn independently of each other.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from handler.errors import SettingError

FILE: Final = Path(__file__).with_name("published_traces.json")
PREFIX: Final = "trace:"


def published_traces() -> Mapping[str, Mapping[str, Any]]:
    """The traces by name, as in the file."""
    traces: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return traces


def trace_lines(name: str, requests: int | None = None, seed: int = 0) -> Iterator[bytes]:
    """The requests of a trace as JSON lines.

    :param requests: their number; None: as many as the trace has.
    :raises SettingError: there is no trace with this name.
    """
    traces = published_traces()
    if name not in traces:
        raise SettingError("LOG", f"there is no trace '{name[:40]}'", f"Use one of {', '.join(traces)}.")
    trace, draw = traces[name], random.Random(seed)
    for _ in range(requests or trace["requests"]):
        prompt, output = (_drawn(trace[kind], draw.random()) for kind in ("prompt", "output"))
        yield b'{"prompt_tokens": %d, "output_tokens": %d}' % (prompt, output)


def _drawn(lengths: Mapping[str, Any], share: float) -> int:
    """The length that this share of the requests does not exceed: a straight line between two quantiles."""
    quantiles = lengths["quantiles"]
    points = [*(at / (len(quantiles) - 1) for at in range(len(quantiles) - 1)), 0.99, 1.0]
    values = [*quantiles[:-1], lengths["p99"], quantiles[-1]]
    after = min(bisect_right(points, share), len(points) - 1)
    low, high = points[after - 1], points[after]
    value: float = values[after - 1] + (values[after] - values[after - 1]) * (share - low) / (high - low)
    return round(value)
