"""One line for each request, in JSON, where ENDPOINT_LOG_REQUESTS asks for it: ids and figures, never a prompt."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from container import attributes
from container.answer import ADAPTER_HEADER
from handler.schemas.reply import encode
from handler.sessions.errors import HEADER as SESSION_HEADER

logger = logging.getLogger(__name__)
# Asked for every few seconds by others than clients.
QUIET = frozenset(("/ping", "/metrics"))
# Header -> key in the line.
IDS: Mapping[str, str] = {
    "X-Amzn-SageMaker-Inference-Id": "inference_id",
    "X-Amzn-SageMaker-Target-Variant": "target_variant",
    "X-Amzn-SageMaker-Inference-Component": "inference_component",
    SESSION_HEADER: "session_id",
    ADAPTER_HEADER: "adapter",
}
LONGEST = 256
LONGEST_HEADER = 1024


def began(worker: object, request: Any) -> None:
    """gunicorn's `pre_request`: notes the time."""
    request.began = time.monotonic()


def ended(worker: object, request: Any, environ: Mapping[str, Any], response: Any) -> None:
    """gunicorn's `post_request`: writes the line, once the reply's last byte is out or its client has left."""
    if response is not None and environ.get("PATH_INFO") not in QUIET:
        logger.info("%s", encode(line(environ, str(response.status), response.sent, request.began)).decode())


def line(environ: Mapping[str, Any], status: str, sent: int, began: float) -> dict[str, object]:
    """:param began: monotonic seconds."""
    found: dict[str, object] = {
        "event": "request",
        "method": environ.get("REQUEST_METHOD", "")[:16],
        "path": environ.get("PATH_INFO", "")[:LONGEST],
        "status": int(status[:3]) if status[:3].isdigit() else 0,
        "seconds": round(time.monotonic() - began, 4),
        "sent_bytes": sent,
    }
    for header, key in IDS.items():
        value = environ.get(f"HTTP_{header.upper().replace('-', '_')}")
        if value:
            found[key] = value[:LONGEST]
    pairs = attributes.parse(environ.get(f"HTTP_{attributes.HEADER.upper().replace('-', '_')}", "")[:LONGEST_HEADER])
    if pairs:
        found["custom_attributes"] = dict(pairs)
    return found
