"""Parses SAGEMAKER_SAFE_PORT_RANGE, the range of ports that the container may open beside the one it serves."""

from __future__ import annotations

import re

from handler.config.problems import BadValue

FIX = "Write the first and the last port, as SageMaker does: 8100-8199"


def parse(text: str) -> tuple[int, int]:
    """The first and the last port.

    :raises BadValue: the text is not a range of ports.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip(), re.ASCII)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise BadValue(f"'{text[:40]}' is not a range of ports", FIX)
    return low, high
