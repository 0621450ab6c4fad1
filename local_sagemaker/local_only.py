"""Keeps web pages away from the servers on this machine, also one whose name its owner makes resolve to it."""

from __future__ import annotations

import re

# The name of a bucket may stand in front. No browser looks a name up that ends with a number.
LOCAL_HOST = re.compile(r"(?:[\w.-]+\.)?(?:127\.0\.0\.1|localhost)(?::\d+)?", re.ASCII | re.IGNORECASE)


def is_foreign(host: str, origin: str | None) -> bool:
    """Whether a request is for another name than this machine's, or from the page of another origin.

    :param host: the value of `Host`.
    :param origin: the value of `Origin`, which programs do not send.
    """
    return LOCAL_HOST.fullmatch(host) is None or (origin is not None and origin.partition("://")[2] != host)
