"""Reads the header of a safetensors file: names, types and shapes of its tensors. No weights are read.

The format (huggingface/safetensors, README): eight bytes, little-endian, give the length of the header. The header is a
JSON object of `{"name": {"dtype", "shape", "data_offsets": [begin, end]}}` with an optional `__metadata__` entry. The
tensor data follows without holes (safetensors/src/tensor.rs, Metadata::validate).

A hostile header must cost little, so it is parsed into exactly this form: that ends at the first value of another kind.
8 MB of `[],[],` take less than a millisecond. A general parser takes a second and 200 MB, and holds up every thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec

from handler.regular_files import open_regular

PREFIX = 8
# How a file begins that Git LFS leaves in the place of one that it has not fetched (git-lfs, docs/spec.md).
LFS_POINTER = b"version "
# The format's own limit is 100 MB (safetensors/src/tensor.rs, MAX_HEADER_SIZE). The largest real ones are below 1 MB.
LARGEST_HEADER = 8 << 20
# Fewer bytes than the shortest entry of a tensor takes.
SHORTEST_ENTRY = 40
# Data type -> bits of an element.
BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
BITS |= dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8)

# Reads `length` bytes from `start` of one file; fewer where the file ends before.
ReadRange = Callable[[int, int], bytes]


class BrokenFile(Exception):
    """The file does not have the format that its name promises. The message completes the sentence "it ..."."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header. `size` is in bytes, and so is `begin`, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    size: int
    begin: int = 0


@dataclass(frozen=True, slots=True)
class TensorSizes:
    """The totals of one or more headers: the number of parameters, and bytes by dtype."""

    parameters: int
    bytes_by_dtype: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.bytes_by_dtype.values())


class _Entry(msgspec.Struct, gc=False):
    """One entry of a header. `__metadata__` has other keys, which are skipped."""

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    data_offsets: tuple[int, int] | None = None


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_HEADERS = msgspec.json.Decoder(dict[str, _Entry])


def read_header(read: ReadRange, size: int | None = None) -> dict[str, Tensor]:
    """Returns the tensors of one file by name. Reads two ranges: the length, then the header.

    :param size: the size of the file in bytes. If given, it must agree with the header.
    :raises BrokenFile: it is not a safetensors file, or it was cut off.
    """
    prefix = read(0, PREFIX)
    if len(prefix) < PREFIX:
        raise BrokenFile(f"has {len(prefix)} bytes, fewer than the {PREFIX} that give the length of the header")
    if prefix == LFS_POINTER:
        raise BrokenFile("is a pointer of Git LFS, and the weights were not fetched (git lfs pull)")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= LARGEST_HEADER:
        most = f"at most {LARGEST_HEADER:,} are read, which is enough for 100,000 tensors"
        raise BrokenFile(f"gives {length:,} bytes as the length of its header; {most}")
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
    """Returns a function that reads ranges of one file on this machine. It raises OSError."""

    def read(start: int, length: int) -> bytes:
        with open_regular(path) as file:
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
    if text.count(b"{") > len(text) // SHORTEST_ENTRY + 100:
        raise BrokenFile("has a header with entries that are no tensors")
    try:
        header = _HEADERS.decode(text)
    except msgspec.ValidationError as error:
        raise BrokenFile(f"has a header whose entries are malformed ({str(error)[:80]})") from None
    except (ValueError, RecursionError):
        raise BrokenFile("has a header that is not JSON") from None
    header.pop("__metadata__", None)
    tensors, places = dict[str, Tensor](), list[tuple[int, int, str]]()
    for name, entry in header.items():
        if not entry.dtype or entry.shape is None or entry.data_offsets is None or min(entry.shape, default=0) < 0:
            raise BrokenFile(f"has a header whose entry '{name[:80]}' is malformed")
        begin, end = entry.data_offsets
        bits = BITS.get(entry.dtype)
        if not 0 <= begin <= end or (bits is not None and prod(entry.shape) * bits != (end - begin) * 8):
            raise BrokenFile(f"has a header whose entry '{name[:80]}' has offsets that do not fit its shape")
        tensors[name] = Tensor(entry.dtype, entry.shape, end - begin, begin)
        places.append((begin, end, name))
    data = 0
    for begin, end, name in sorted(places):
        if begin != data:
            raise BrokenFile(f"has a header whose entry '{name[:80]}' does not begin where the one before ends")
        data = end
    return tensors, data
