"""Names, types and shapes of a safetensors file's tensors, and whether the file is as long as they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

# How to get so many bytes from a position of one file.
Read = Callable[[int, int], bytes]
# The format's own limit (huggingface/safetensors, safetensors/src/tensor.rs: MAX_HEADER_SIZE).
LARGEST_HEADER = 100_000_000


class BrokenFile(Exception):
    """The file is not what its name says. The message is the end of a sentence: "it ..."."""


def tensors(read: Read, size: int) -> dict[str, tuple[str, list[int]]]:
    """Each tensor's dtype and shape by name; the data is not read.

    :param size: bytes of the file.
    :raises BrokenFile: it is no safetensors file, or shorter or longer than its header says.
    """
    length = int.from_bytes(read(0, 8), "little") if size >= 8 else 0
    if not 2 <= length <= min(LARGEST_HEADER, size - 8):
        raise BrokenFile(f"has {size:,} bytes, too few for its header" if length <= LARGEST_HEADER else "has no header")
    try:
        header = msgspec.json.decode(read(8, length), type=dict[str, dict[str, Any]])
        header.pop("__metadata__", None)
        found = {name: (str(entry["dtype"]), list(entry["shape"])) for name, entry in header.items()}
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise BrokenFile("has a header that cannot be read") from error
    if 8 + length + end != size:
        raise BrokenFile(f"has {size:,} bytes, and {8 + length + end:,} by its header")
    return found
