"""The table of docs/neuron-lines.md of sampling parameters, from what the code refuses. Prints it when it is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from handler.engine.generation.generation import Grammar, Sampling
from handler.engine.generation.sampling_check import check, check_document
from handler.errors import ClientError
from handler.neuron.lines.line_registry import NAMES
from handler.neuron.sampling_limits import SamplingLimits, sampling_limits
from tests.handler.neuron.neuron_plans import outcome

COLUMNS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "temperature, top_p": ({"temperature": 0.5, "top_p": 0.9},),
    "top_k": ({"top_k": 256},),
    "top_k > 256": ({"top_k": 257},),
    "penalties": tuple({name: 0.5} for name in ("repetition_penalty", "frequency_penalty", "presence_penalty")),
    "min_tokens": ({"min_tokens": 2},),
    "seed": ({"seed": 1},),
    "min_p": ({"min_p": 0.1},),
    "bad_words, allowed_token_ids": ({"document": {"bad_words": ["a"]}}, {"document": {"allowed_token_ids": [1]}}),
    "logit_bias": ({"document": {"logit_bias": {"1": 1}}},),
    "structured output": ({"grammar": Grammar("json", "{}", "response_format")},),
    "logprobs": ({"logprobs": 1},),
    "prompt_logprobs": ({"prompt_logprobs": 1},),
}
MODES: Mapping[str, dict[str, Any]] = {
    "": {},
    "`ENDPOINT_ON_DEVICE_SAMPLING=true`": {"on_device_sampling": True},
    "`ENDPOINT_ON_DEVICE_SAMPLING=false`": {"on_device_sampling": False},
    "`ENDPOINT_STRUCTURED_OUTPUTS=true`": {"structured_outputs": True},
    "`ENDPOINT_LOGPROBS=true`": {"logprobs": True},
}


def table() -> str:
    """A row for all lines that answer alike, by default and where sampling was chosen."""
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in NAMES:
        default: tuple[str, ...] = ()
        for mode, settings in MODES.items():
            plan = outcome(line, **settings).plan
            if plan is None:
                continue
            cells = tuple(cell(sampling_limits(plan), asked) for asked in COLUMNS.values())
            if not mode or cells != default:
                rows[mode, *cells].append(f"`{line}`")
            if not mode:
                default = cells
    lines = [("line", "where", *COLUMNS), ("---",) * (len(COLUMNS) + 2)]
    lines += [(", ".join(names), mode or "by default", *cells) for (mode, *cells), names in rows.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def cell(limits: SamplingLimits, asked: tuple[dict[str, Any], ...]) -> str:
    refused = {served(limits, one) for one in asked}
    return "yes" if refused == {True} else "400" if refused == {False} else "some"


def served(limits: SamplingLimits, asked: dict[str, Any]) -> bool:
    try:
        if "document" in asked:
            check_document(asked["document"], limits)
        else:
            check(Sampling(**asked), limits)
    except ClientError:
        return False
    return True


if __name__ == "__main__":
    print(table(), end="")
