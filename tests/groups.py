"""Which tests of `make test` run one after the other in one process: those of a file, and those that share something.

xdist's own groups (`--dist loadgroup`) have no effect with pytest 9.2, which took away the attribute that xdist 3.8.0
writes a group to.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
# How a test of tests/endpoint asks for the engine that its conftest.py starts once.
SHARES = re.compile(r"\bendpoint: ServeProcess|\bgateway\b|\bruntime\b")
# These look at every /dev/shm/endpoint-*.
FRONT_ENDS = ("tests/endpoint/test_front_ends.py", "tests/container/server/test_multiprocess.py")


@cache
def group(file: str) -> str:
    """The group of a test file, given as its path from the root."""
    if file in FRONT_ENDS:
        return "front ends"
    shares = file.startswith("tests/endpoint/") and SHARES.search((ROOT / file).read_text(encoding="utf-8"))
    return "endpoint" if shares else file
