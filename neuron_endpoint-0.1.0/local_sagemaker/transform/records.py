"""Splits input objects into payloads, and assembles the replies."""

from __future__ import annotations

import re
from collections.abc import Iterator

MEGABYTE = 1024 * 1024


class RecordTooLong(Exception):
    """A record does not fit into MaxPayloadInMB."""


def payloads(body: bytes, split: str, strategy: str, most: int) -> Iterator[bytes]:
    """Yields the payload of each request.

    :param split: ``None`` (the whole object) or ``Line``.
    :param strategy: ``SingleRecord``, or ``MultiRecord``: as many lines as fit into ``most`` bytes. Each keeps its line
        end, and empty lines are records too (sagemaker-python-sdk, local/data.py: LineSplitter).
    :param most: 0: any size.
    :raises RecordTooLong: one record alone does not fit.
    """
    if split == "None":
        yield _fitting(body, most)
        return
    if strategy == "SingleRecord":
        yield from (_fitting(line, most) for line in lines(body))
        return
    batch: list[bytes] = []
    size = 0
    for line in lines(body):
        _fitting(line, most)
        if batch and most and size + len(line) > most:
            yield b"".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield b"".join(batch)


def lines(body: bytes) -> list[bytes]:
    return [line for line in re.split(rb"(?<=\n)", body) if line]


def assemble(answers: list[bytes], how: str) -> bytes:
    """Joins the replies.

    :param how: ``None`` (concatenate) or ``Line`` (add a newline to each; sagemaker-python-sdk, local/entities.py).
    """
    return b"".join(answer + (b"\n" if how == "Line" else b"") for answer in answers)


def _fitting(record: bytes, most: int) -> bytes:
    if most and len(record) > most:
        raise RecordTooLong(f"a record of {len(record)} bytes is longer than MaxPayloadInMB ({most // MEGABYTE} MB)")
    return record
