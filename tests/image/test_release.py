"""The dry run of a release: its files, its tags, and one version in all of them."""

from __future__ import annotations

import json
import re

import click
import pytest

from image import release


def test_the_notes_are_the_version_s_section_of_the_changelog() -> None:
    changelog = "# Changes\n\n## 1.1.0 (unreleased)\n\n- b\n\n## 1.0.0\n\n- a\n"
    assert release.notes(changelog, "1.1.0") == "- b\n"
    assert release.notes(changelog, "1.0.0") == "- a\n"
    with pytest.raises(click.ClickException, match=r"no section for 1\.2\.0"):
        release.notes(changelog, "1.2.0")
    assert "**Container**" in release.notes((release.ROOT / "CHANGELOG.md").read_text(), release.version())


def test_an_image_is_named_after_its_version_and_its_base() -> None:
    cpu, *lines = release.image_commands("1.2.3")
    assert cpu[-1] == "neuron-endpoint:1.2.3-cpu"
    assert len(lines) == 3
    for command in lines:
        tag, base = command[command.index("--tag") + 1], command[command.index("--base") + 1]
        assert tag.removeprefix("neuron-endpoint:1.2.3-") == base.rpartition(":")[2]


def test_the_dev_container_installs_what_the_machine_needs_and_runs_make_setup() -> None:
    stated = json.loads((release.ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert stated["postCreateCommand"] == "make setup"
    assert {"g++", "libnuma1", "podman", "mmdebstrap", "prometheus"} <= set(stated["onCreateCommand"].split())
    makefile = (release.ROOT / "Makefile").read_text()
    ports = {int(port) for port in re.findall(r"^(?:PORT|GATEWAY_PORT) \?= (\d+)$", makefile, re.MULTILINE)}
    assert set(stated["forwardPorts"]) == ports
