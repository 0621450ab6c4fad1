"""The reason of a failed start in one line, and its fix."""

from __future__ import annotations

import re
from typing import Final

# Messages of the compiler and the runtime, and their fixes. F137: the system killed neuronx-cc because memory ran out.
# NCC_EOOM: the graph needs more memory than the device has (AWS Neuron documentation, "Neuron Compiler Error Codes").
# Status 4: NRT_RESOURCE (AWS Neuron documentation, "nrt_status.h").
# A reasoning parser: vLLM 0.24 and later make it as they make their configuration (config/reasoning.py).
# DefaultCPUAllocator: the host lacks the memory, mostly for the KV cache of the CPU line (torch).
_FIXES: Final = (
    (
        re.compile(r"DefaultCPUAllocator"),
        "Lower VLLM_CPU_KVCACHE_SPACE, max_num_seqs or max_model_len, or use a machine with more memory.",
    ),
    (
        re.compile(r"reasoning \w+ could not locate"),
        "Set ENDPOINT_REASONING_PARSER to the parser of the model's family (docs/tool-calls.md).",
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        "Free space on the disk that is full, name a directory on a larger volume in ENDPOINT_SCRATCH, or enlarge it.",
    ),
    (re.compile(r"Read-only file system"), "Name a writable directory in ENDPOINT_SCRATCH."),
    (
        re.compile(r"F137|insufficient system memory|MemoryError|Cannot allocate memory"),
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
    """The fix for a failure with this reason."""
    return next((text for pattern, text in _FIXES if pattern.search(reason)), OTHERWISE)


def in_one_line(error: BaseException) -> str:
    """An exception's message as one line: its first line or, for pydantic, the first problem with its field."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if len(lines) > 1 and "validation error" in lines[0]:
        place = next((number for number, line in enumerate(lines) if _PROBLEM.search(line)), 1)
        field = f"{lines[place - 1]}: " if place > 1 else ""
        return f"{field}{_PROBLEM.sub('', lines[place])}"[:LONGEST]
    return lines[0][:LONGEST] if lines else "no message"
