"""SAGEMAKER_SAFE_PORT_RANGE: where the ports lie that the container may open besides the one it serves."""

from __future__ import annotations

import re

from handler.config.problems import BadValue

FIX = "Write it as SageMaker does, 8100-8199 for one"


def parse(text: str) -> tuple[int, int]:
    """The first and the last port.

    :raises BadValue: it is no range.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip(), re.ASCII)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise BadValue(f"'{text[:40]}' is no range of ports", FIX)
    return low, high
