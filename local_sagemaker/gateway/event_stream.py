"""Cuts a streamed body into payload parts, and encodes them as AWS event-stream frames. botocore only decodes them.

A frame is ``u32 total | u32 headers_len | crc32(prelude) | headers | payload | crc32(all before)``, a header
``u8 len, name, 0x07, u16 len, value``: strings are the only header type SageMaker's runtime uses.

SageMaker does not define where a part ends: it may be inside an SSE event, a JSON string or a UTF-8 character. A client
that parses part by part works on a quiet machine and fails in production. So a gateway can cut at such places on
purpose. No cut delays bytes: everything that has arrived is sent at once.
"""

from __future__ import annotations

import json
import random
from binascii import crc32
from collections.abc import Callable, Iterator
from functools import cache, partial
from struct import pack

STRING_HEADER = 7
PRELUDE_AND_CHECKSUMS = 16

PART_HEADERS = (
    (":event-type", "PayloadPart"),
    (":content-type", "application/octet-stream"),
    (":message-type", "event"),
)
Cut = Callable[[bytes], Iterator[bytes]]
LONGEST = 48


def encode(headers: tuple[tuple[str, str], ...], payload: bytes) -> bytes:
    """Returns one frame."""
    encoded = encode_headers(headers)
    prelude = pack("!II", PRELUDE_AND_CHECKSUMS + len(encoded) + len(payload), len(encoded))
    before_checksum = b"".join((prelude, pack("!I", crc32(prelude)), encoded, payload))
    return before_checksum + pack("!I", crc32(before_checksum))


@cache
def encode_headers(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Encodes headers. The result is cached, because every part of every stream has the same three headers."""
    encoded = bytearray()
    for name, value in headers:
        raw_name, raw_value = name.encode(), value.encode()
        encoded += pack("!B", len(raw_name)) + raw_name
        encoded += pack("!BH", STRING_HEADER, len(raw_value)) + raw_value
    return bytes(encoded)


def payload_part(part: bytes) -> bytes:
    return encode(PART_HEADERS, part)


def exception(kind: str, message: str, error_code: str | None = None) -> bytes:
    """Returns the frame that ends a failed stream. The status is already sent, so the last frame reports the failure.

    :param kind: a member of ``ResponseStream`` in the service model.
    :param message: boto3 keeps only this, so it contains everything that a caller needs.
    :param error_code: the ``ErrorCode`` of a ModelStreamError.
    """
    headers = ((":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception"))
    fields = {"Message": message} if error_code is None else {"Message": message, "ErrorCode": error_code}
    return encode(headers, json.dumps(fields).encode())


def model_stream_error(error_code: str, reason: str) -> bytes:
    return exception("ModelStreamError", f"{error_code}: {reason}", error_code)


def as_they_arrive(arrived: bytes) -> Iterator[bytes]:
    """Sends one part for each chunk of the container's reply. Clients that expect one event per part need this."""
    yield arrived


def cut_every(size: int, arrived: bytes) -> Iterator[bytes]:
    """Cuts into parts of at most ``size`` bytes."""
    for start in range(0, len(arrived), size):
        yield arrived[start : start + size]


def cut_at_random(arrived: bytes) -> Iterator[bytes]:
    """Cuts into parts of 1 to `LONGEST` bytes."""
    start = 0
    while start < len(arrived):
        end = start + random.randint(1, LONGEST)
        yield arrived[start:end]
        start = end


def parse_cut(text: str | None) -> Cut:
    """Parses ``--cut-parts``: nothing, a number of bytes, or ``random``."""
    if text is None:
        return as_they_arrive
    if text == "random":
        return cut_at_random
    if text.isascii() and text.isdigit() and int(text) > 0:
        return partial(cut_every, int(text))
    raise ValueError(f"{text!r} is neither a number of bytes above 0 nor 'random'")
