"""Reads the header of a safetensors file: names, types and shapes of its tensors. No weights are read.

The format (huggingface/safetensors, README): eight bytes, little-endian, give the length of the header. The header is a
JSON object of `{"name": {"dtype", "shape", "data_offsets": [begin, end]}}` with an optional `__metadata__` entry. The
tensor data follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from handler.json_value import Json

PREFIX = 8
# The format's own limit (safetensors/src/tensor.rs: MAX_HEADER_SIZE); the largest real headers are below 1 MB.
LARGEST_HEADER = 100_000_000

# Reads `length` bytes from `start` of one file; fewer where the file ends before.
ReadRange = Callable[[int, int], bytes]


class BrokenFile(Exception):
    """The file does not have the format that its name promises. The message completes the sentence "it ..."."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header. `size` is in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class TensorSizes:
    """The totals of one or more headers: the number of parameters, and bytes by dtype."""

    parameters: int
    bytes_by_dtype: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.bytes_by_dtype.values())


def read_header(read: ReadRange, size: int | None = None) -> dict[str, Tensor]:
    """Returns the tensors of one file by name. Reads two ranges: the length, then the header.

    :param size: the size of the file in bytes. If given, it must agree with the header.
    :raises BrokenFile: it is not a safetensors file, or it was cut off.
    """
    prefix = read(0, PREFIX)
    if len(prefix) < PREFIX:
        raise BrokenFile(f"has {len(prefix)} bytes, fewer than the {PREFIX} that give the length of the header")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= LARGEST_HEADER:
        raise BrokenFile(f"gives {length:,} bytes as the length of its header")
    if size is not None and PREFIX + length > size:
        raise BrokenFile(f"has {size:,} bytes, fewer than its header of {length:,} bytes needs")
    text = read(PREFIX, length)
    if len(text) < length:
        raise BrokenFile(f"has a header that ends after {len(text):,} of {length:,} bytes")
    tensors, data = _parsed(text)
    if size is not None and PREFIX + length + data != size:
        raise BrokenFile(f"has {size:,} bytes, but its header describes {PREFIX + length + data:,}")
    return tensors


def file_range(path: Path) -> ReadRange:
    """Returns a function that reads ranges of one file on this machine."""

    def read(start: int, length: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    return read


def total_sizes(headers: Iterable[dict[str, Tensor]]) -> TensorSizes:
    """Adds up the tensors of several files."""
    parameters, by_dtype = 0, dict[str, int]()
    for header in headers:
        for tensor in header.values():
            parameters += prod(tensor.shape)
            by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.size
    return TensorSizes(parameters, by_dtype)


def _parsed(text: bytes) -> tuple[dict[str, Tensor], int]:
    """The tensors, and the number of bytes that their data takes."""
    try:
        header: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenFile("has a header that is not JSON") from None
    if not isinstance(header, dict):
        raise BrokenFile("has a header that is not a JSON object")
    tensors, data = dict[str, Tensor](), 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        match entry:
            case {
                "dtype": str() as dtype,
                "shape": list() as dimensions,
                "data_offsets": [int() as begin, int() as end],
            } if 0 <= begin <= end:
                shape = tuple(each for each in dimensions if isinstance(each, int) and each >= 0)
                if len(shape) == len(dimensions):
                    tensors[name] = Tensor(dtype, shape, end - begin)
                    data = max(data, end)
                    continue
        raise BrokenFile(f"has a header whose entry '{name[:80]}' is malformed")
    return tensors, data
