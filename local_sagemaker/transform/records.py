"""Splits input objects into payloads, and assembles the replies."""

from __future__ import annotations

from collections.abc import Iterator

MEGABYTE = 1024 * 1024


class RecordTooLong(Exception):
    """A record does not fit into MaxPayloadInMB."""


def payloads(body: bytes, split: str, strategy: str, most: int) -> Iterator[bytes]:
    """Yields the payload of each request.

    :param split: ``None`` (the whole object) or ``Line``.
    :param strategy: ``SingleRecord``, or ``MultiRecord``: as many lines as fit into ``most`` bytes.
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
        if batch and size + len(line) + 1 > most:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield b"\n".join(batch)


def lines(body: bytes) -> Iterator[bytes]:
    """Returns the lines of JSON Lines without line ends and without empty lines."""
    for line in body.split(b"\n"):
        if stripped := line.rstrip(b"\r"):
            yield stripped


def assemble(answers: list[bytes], how: str) -> bytes:
    """Joins the replies.

    :param how: ``None`` (concatenate) or ``Line`` (end each with a newline).
    """
    if how == "None":
        return b"".join(answers)
    return b"".join(answer if answer.endswith(b"\n") else answer + b"\n" for answer in answers)


def _fitting(record: bytes, most: int) -> bytes:
    if len(record) > most:
        raise RecordTooLong(f"a record of {len(record)} bytes is longer than MaxPayloadInMB ({most // MEGABYTE} MB)")
    return record
