"""Which tests of `make test` run one after the other in one process, and which groups start first.

A group is a file's tests, or the tests that share something. The longest groups start first, so that no process is left
alone with one at the end. Tests that compile with torch.compile are one group: a compile uses all cores, and a
deployment waits 240 s for it.

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
COMPILES = ("tests/notebooks/test_notebooks.py", "tests/endpoint/test_artifacts.py")
# The groups that take longest, by the processor time that they took on two cores.
LONGEST = (
    "compiles",
    "endpoint",
    "tests/endpoint/test_neuron_kills.py",
    "tests/endpoint/test_neuron_native.py",
    "tests/endpoint/test_neuron_failures.py",
    "tests/simulation/schedules/test_schedules.py",
    "tests/sagemaker_contract/test_on_aws.py",
    "tests/endpoint/test_adapters.py",
    "tests/neuron_contract/test_stand_in_engine.py",
    "tests/endpoint/test_failure.py",
    "tests/endpoint/test_pooling.py",
)


def group(node: str) -> str:
    """The group of a test, given as its path from the root, `::` and its name."""
    return _group_of_file(node.partition("::")[0])


def place(node: str) -> int:
    """Where the group of a test is in `LONGEST`: the number of these groups if it is none of them."""
    found = group(node)
    return LONGEST.index(found) if found in LONGEST else len(LONGEST)


@cache
def _group_of_file(file: str) -> str:
    if file in COMPILES:
        return "compiles"
    shares = file.startswith("tests/endpoint/") and SHARES.search((ROOT / file).read_text(encoding="utf-8"))
    return "endpoint" if shares else file
