"""`neuron-endpoint store` over a store in which something is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from tests.model_packaging.command import run

BROKEN, SOUND = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two entries, and the manifest of the first one cut off."""
    artifacts, root = tmp_path / "artifacts", tmp_path / "store"
    artifacts.mkdir()
    root.mkdir()
    (artifacts / "graph.neff").write_bytes(b"abc")
    for key in (BROKEN, SOUND):
        ArtifactStore.open(root.as_uri()).publish(artifacts, CompileInputs(key, "graph", {"platform": "trn2"}))
    manifest = root / "manifests" / "graph" / f"{BROKEN}.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    return root


def listed(store: Path) -> Any:
    result = run("store", "ls", store.as_uri(), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("key", [BROKEN, "aaaa"])
def test_a_broken_entry_is_deleted_by_its_key_and_collecting_works_again(store: Path, key: str) -> None:
    stuck = run("store", "rm", store.as_uri(), "--keep", "9")
    assert stuck.exit_code == 1
    assert "Delete the entry" in stuck.output
    assert f"Would delete graph {BROKEN}." in run("store", "rm", store.as_uri(), key, "--dry-run").output
    result = run("store", "rm", store.as_uri(), key)
    assert result.exit_code == 0, result.output
    assert f"Deleted graph {BROKEN}." in result.output
    assert listed(store)["unusable"] == []
    assert [entry["key"] for entry in listed(store)["entries"]] == [SOUND]
    assert run("store", "rm", store.as_uri(), "--keep", "9").exit_code == 0


def test_a_damaged_entry_that_is_removed_and_published_again_is_sound(store: Path) -> None:
    """As the error of a start with a damaged entry advises."""
    (damaged,) = (file for file in store.glob("objects/*/*"))
    damaged.write_bytes(b"abd")
    assert run("store", "verify", store.as_uri(), SOUND).exit_code == 1
    assert run("store", "rm", store.as_uri(), BROKEN).exit_code == 0
    result = run("store", "rm", "--damaged", store.as_uri(), SOUND)
    assert result.exit_code == 0, result.output
    assert f"Deleted damaged objects of graph {SOUND}: 1." in result.output
    ArtifactStore.open(store.as_uri()).publish(store.parent / "artifacts", CompileInputs(SOUND, "graph", {}))
    assert run("store", "verify", store.as_uri(), SOUND).exit_code == 0


def test_verifying_a_broken_entry_says_what_is_broken(store: Path) -> None:
    result = run("store", "verify", store.as_uri(), BROKEN)
    assert result.exit_code == 1
    assert "cannot be used" in result.output


def test_a_pinned_broken_entry_is_kept(store: Path) -> None:
    assert run("store", "pin", store.as_uri(), BROKEN).exit_code == 0
    assert f"Pinned, and so kept: graph {BROKEN}." in run("store", "rm", store.as_uri(), BROKEN).output


@pytest.mark.parametrize(
    "changed", [{"created": 1e300}, {"created": -1e18}, {"created": -1}, {"compile_seconds": 1e300}]
)
def test_a_time_that_is_none_makes_an_entry_unusable(store: Path, changed: dict[str, float]) -> None:
    manifest = store / "manifests" / "graph" / f"{SOUND}.json"
    document = json.loads(manifest.read_bytes())
    document["manifest"].update(changed)
    manifest.write_text(json.dumps(document))
    result = run("store", "ls", store.as_uri())
    assert result.exit_code == 0, result.output
    assert next(iter(changed)) in "".join(listed(store)["unusable"])


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "-inf", "1e309"])
def test_an_age_that_is_none_deletes_nothing(store: Path, days: str) -> None:
    result = run("store", "rm", store.as_uri(), "--older-than", days)
    assert result.exit_code == 2, result.output
    assert "--older-than" in result.output
    assert [entry["key"] for entry in listed(store)["entries"]] == [SOUND]
