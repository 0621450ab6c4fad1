"""Why an engine did not come up, in one line, and what fixes it."""

from __future__ import annotations

import re
from typing import Final

# What the compiler and the runtime say, and what helps. F137: the system killed neuronx-cc, for want of memory.
# NCC_EOOM: the graph needs more than the device has (AWS Neuron documentation, "Neuron Compiler Error Codes").
# Status 4: NRT_RESOURCE (the same, "nrt_status.h").
_FIXES: Final = (
    (
        re.compile(r"F137|insufficient system memory|MemoryError"),
        "Compile on an instance with more host memory, or for fewer buckets or a shorter max_model_len.",
    ),
    (
        re.compile(r"allocate .*memory|out of memory|NCC_EOOM|status=4\b", re.IGNORECASE),
        "Raise tensor_parallel_size, or lower max_num_seqs or max_model_len: the model does not fit the device.",
    ),
)
OTHERWISE: Final = "Change the configuration, or the compiler's version."
# The end of a problem in a pydantic.ValidationError.
_PROBLEM: Final = re.compile(r" \[type=.*")
LONGEST: Final = 300


def fix_for(reason: str) -> str:
    """What helps against a failure that says `reason`."""
    return next((text for pattern, text in _FIXES if pattern.search(reason)), OTHERWISE)


def in_one_line(error: BaseException) -> str:
    """What an exception says: its first line, or of pydantic's, whose first only counts, the first problem."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if len(lines) > 1 and "validation error" in lines[0]:
        said = next((line for line in lines[1:] if _PROBLEM.search(line)), lines[1])
        return _PROBLEM.sub("", said)[:LONGEST]
    return lines[0][:LONGEST] if lines else "no message"
