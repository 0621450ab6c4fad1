"""Bounds the memory of an array that a body is decoded to: a body of 1 MB may be an array of many GB."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any, Final
from zipfile import ZipFile

from handler.errors import InvalidBody

MOST_BYTES: Final = 512 * 1024 * 1024
# Bytes of a character in an array, and the characters of a number in an array that has texts, too.
CHARACTER: Final = 4
NUMBER: Final = 32
CELL_END: Final = re.compile("[,\n]")


def check_values(document: Any) -> None:
    """Bounds an array with texts: each value takes as much as the longest text.

    :param document: of JSON.
    :raises InvalidBody: the array would have more than `MOST_BYTES`.
    """
    values, longest, lists = 0, 0, [[document]]
    while lists:
        for value in lists.pop():
            if isinstance(value, list):
                lists.append(value)
            elif value is None or isinstance(value, dict):
                return  # an array of objects, which refers to each text
            else:
                values += 1
                longest = max(longest, len(value) if isinstance(value, str) else NUMBER)
    _check(values * longest * CHARACTER)


def check_cells(csv: str) -> None:
    """As `check_values`, for CSV."""
    cells = CELL_END.split(csv)
    _check(len(cells) * max(map(len, cells)) * CHARACTER)


def check_npz(archive: bytes) -> None:
    """Bounds what the arrays of an `.npz` file are unpacked to.

    :raises InvalidBody: they have more than `MOST_BYTES`.
    :raises zipfile.BadZipFile: it is no such file.
    """
    with ZipFile(BytesIO(archive)) as files:
        _check(sum(file.file_size for file in files.infolist()))


def _check(size: int) -> None:
    if size > MOST_BYTES:
        raise InvalidBody(f"as an array it may take {size:,} bytes; at most {MOST_BYTES:,} are allowed", "less at once")
