"""Reads a request's body once. Both the signature check and the view use it."""

from __future__ import annotations

from flask import g, request

from local_sagemaker.gateway.gateway_errors import OversizeBody

READ_AT_ONCE = 1024 * 1024


def read_body(limit: int) -> bytes:
    """Returns the body. One that is too long is still read to its end: a client that is sending reads no reply.

    :raises OversizeBody: it has more than ``limit`` bytes.
    """
    if "body" not in g:
        parts, size = [], 0
        while part := request.stream.read(READ_AT_ONCE):
            size += len(part)
            if size <= limit:
                parts.append(part)
        if size > limit:
            raise OversizeBody(g.request_id, limit)
        g.body = b"".join(parts)
    body: bytes = g.body
    return body
