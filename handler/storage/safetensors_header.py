"""The header of a safetensors file: tensor names, types and shapes, without one byte of weights.

The format (huggingface/safetensors, README): eight bytes, little-endian, the length of the header; the header, a JSON
object of `{"name": {"dtype", "shape", "data_offsets": [begin, end]}}` and a free `__metadata__`; the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from handler.errors import SettingError
from handler.json_value import Json

PREFIX = 8
# The format's own limit; the largest real headers are below 1 MB.
LARGEST_HEADER = 100_000_000

# How to get bytes [begin, end) of one file.
ReadRange = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class TensorSizes:
    """What headers add up to: elements, and bytes by dtype."""

    parameters: int
    bytes_by_dtype: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.bytes_by_dtype.values())


def read_header(read: ReadRange, where: str) -> TensorSizes:
    """Reads one file's header: two ranges, the length and then exactly as many bytes as it says.

    :param where: the file's name, for messages.
    :raises SettingError: it is not a safetensors file.
    """
    prefix = read(0, PREFIX)
    if len(prefix) < PREFIX:
        raise _broken(where, f"it has {len(prefix)} bytes")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= LARGEST_HEADER:
        raise _broken(where, f"its header says that it is {length:,} bytes long")
    text = read(PREFIX, PREFIX + length)
    if len(text) < length:
        raise _broken(where, f"its header ends after {len(text):,} of {length:,} bytes")
    try:
        header: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise _broken(where, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _broken(where, "its header is not a JSON object")
    return _sizes(header, where)


def add(sizes: Iterable[TensorSizes]) -> TensorSizes:
    """The sizes of several files together."""
    parameters, by_dtype = 0, dict[str, int]()
    for one in sizes:
        parameters += one.parameters
        for dtype, count in one.bytes_by_dtype.items():
            by_dtype[dtype] = by_dtype.get(dtype, 0) + count
    return TensorSizes(parameters, by_dtype)


def _sizes(header: dict[str, Json], where: str) -> TensorSizes:
    parameters, by_dtype = 0, dict[str, int]()
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        match tensor:
            case {
                "dtype": str() as dtype,
                "shape": list() as shape,
                "data_offsets": [int() as begin, int() as end],
            } if 0 <= begin <= end and all(isinstance(size, int) and size >= 0 for size in shape):
                parameters += prod(size for size in shape if isinstance(size, int))
                by_dtype[dtype] = by_dtype.get(dtype, 0) + end - begin
            case _:
                raise _broken(where, f"the entry of '{name[:80]}' in its header is malformed")
    return TensorSizes(parameters, by_dtype)


def _broken(where: str, problem: str) -> SettingError:
    return SettingError(where, f"is not a safetensors file: {problem}", "Upload the file again; it may be cut off.")
