from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from handler.artifacts.store import manifest as manifests
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.artifact_store import ArtifactStore, Damage
from handler.artifacts.store.manifest_signature import SecretSigner
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import ChangedFile, InvalidManifest, NotFound, SignatureRefused, UnsafePath
from tests.handler.artifacts.artifact_files import KEY, ingredients, object_names, write_artifacts

OTHER = "b" * 64


def test_what_is_published_is_found(store: ArtifactStore, directory: Path, again: Callable[[], ObjectStore]) -> None:
    published = store.publish(directory, ingredients(lnc=1))
    found = ArtifactStore(again()).find(KEY, "graph")
    assert found == published
    assert found is not None
    assert found.fields == {"lnc": 1}
    assert found.machine == {"instance": "trn1.2xlarge"}
    assert [file.path for file in found.files] == ["neuron_config.json", "model.pt"]
    for file in found.files:
        path = directory / file.path
        assert b"".join(store.objects.read(layout.object_name(file.digest))) == path.read_bytes()
        assert store.object_location(file.digest).uri.endswith(file.digest)
    assert store.find(OTHER, "graph") is None
    assert store.find(KEY, "weights") is None


def test_graph_and_weights_are_entries_of_their_own_in_the_order_of_ranks(store: ArtifactStore, tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "artifacts", ranks=12)
    weights = store.publish(directory, ingredients(OTHER, "weights"))
    assert [file.path for file in weights.files] == [
        f"weights/tp{rank}_sharded_checkpoint.safetensors" for rank in range(12)
    ]
    assert len(store.publish(directory, ingredients()).files) == 2
    assert {entry.kind for entry in store.entries()} == {"graph", "weights"}
    assert [entry.key for entry in store.entries("weights")] == [OTHER]


def test_what_is_there_is_not_uploaded_again(
    store: ArtifactStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(directory, ingredients())
    monkeypatch.setattr(store.objects, "upload", lambda *arguments: pytest.fail("uploaded again"))
    store.publish(directory, ingredients(OTHER))
    assert store.find(OTHER, "graph") is not None


def test_progress_counts_to_the_end(store: ArtifactStore, directory: Path) -> None:
    seen: list[tuple[int, int]] = []
    manifest = store.publish(directory, ingredients(), lambda done, total: seen.append((done, total)))
    total = sum(file.size for file in manifest.files)
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)


def test_a_publish_that_dies_before_its_manifest_leaves_nothing_to_see(
    store: ArtifactStore, directory: Path, monkeypatch: pytest.MonkeyPatch, again: Callable[[], ObjectStore]
) -> None:
    def die(*arguments: object, **conditions: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.objects, "put", die)
    with pytest.raises(KeyboardInterrupt):
        store.publish(directory, ingredients())
    reader = ArtifactStore(again())
    assert object_names(reader)
    assert reader.find(KEY, "graph") is None
    assert list(reader.entries()) == []
    reader.publish(directory, ingredients())
    assert reader.verify(KEY, "graph") == ()


def test_a_file_that_changes_meanwhile_is_not_published(
    store: ArtifactStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = store.objects.upload

    def slow(key: str, path: Path) -> None:
        upload(key, path)
        path.write_bytes(path.read_bytes() + b"more")

    monkeypatch.setattr(store.objects, "upload", slow)
    with pytest.raises(ChangedFile):
        store.publish(directory, ingredients())
    assert store.find(KEY, "graph") is None


def test_links_are_not_published(store: ArtifactStore, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (directory / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UnsafePath, match="link"):
        store.publish(directory, ingredients())


def test_an_empty_directory_is_no_entry(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound):
        store.publish(tmp_path / "empty", ingredients())


def test_an_entry_is_not_replaced(store: ArtifactStore, directory: Path) -> None:
    first = store.publish(directory, ingredients())
    (directory / "model.pt").write_bytes(b"another compile")
    assert store.publish(directory, ingredients()) == first
    assert store.find(KEY, "graph") == first


def test_a_broken_manifest_is_replaced(store: ArtifactStore, directory: Path) -> None:
    store.objects.put(layout.manifest_name("graph", KEY), b"{")
    with pytest.raises(InvalidManifest):
        store.find(KEY, "graph")
    published = store.publish(directory, ingredients())
    assert store.find(KEY, "graph") == published


def test_a_manifest_under_another_key_is_refused(store: ArtifactStore, directory: Path) -> None:
    store.publish(directory, ingredients())
    body, _ = store.objects.get(layout.manifest_name("graph", KEY))
    store.objects.put(layout.manifest_name("graph", OTHER), body)
    with pytest.raises(InvalidManifest, match=KEY):
        store.find(OTHER, "graph")


def test_entries_that_cannot_be_used_are_passed_over_and_named(store: ArtifactStore, directory: Path) -> None:
    store.publish(directory, ingredients())
    store.objects.put(layout.manifest_name("graph", OTHER), b'{"schema": 9}')
    store.objects.put("manifests/graph/readme.txt", b"not ours")
    store.objects.put("manifests/other/x.json", b"not ours")
    assert [entry.key for entry in store.entries()] == [KEY]
    assert ["'9'" in error.message for error in store.unusable()] == [True]


def test_verify_names_what_is_damaged(store: ArtifactStore, tmp_path: Path) -> None:
    directory = write_artifacts(tmp_path / "artifacts", ranks=3, fill=b"\x07")
    manifest = store.publish(directory, ingredients(kind="weights"))
    assert store.verify(KEY, "weights") == ()
    gone, flipped, cut = (layout.object_name(file.digest) for file in manifest.files)
    store.objects.delete(gone)
    body = bytearray(store.objects.get(flipped)[0])
    body[-1] ^= 1
    store.objects.put(flipped, bytes(body))
    store.objects.put(cut, store.objects.get(cut)[0][:-3])
    damages = store.verify(KEY, "weights")
    assert [damage.path for damage in damages] == [file.path for file in manifest.files]
    assert [word in damage.problem for word, damage in zip(("missing", "digest", "bytes"), damages, strict=True)]
    assert all(isinstance(damage, Damage) for damage in damages)
    with pytest.raises(NotFound):
        store.verify(OTHER, "graph")


def damage(store: ArtifactStore, digest: str) -> None:
    """Changes a byte of an object. Its size stays."""
    name = layout.object_name(digest)
    body = bytearray(store.objects.get(name)[0])
    body[100] ^= 1
    store.objects.put(name, bytes(body))


def test_after_damaged_objects_are_deleted_a_publication_makes_a_sound_entry(
    store: ArtifactStore, directory: Path
) -> None:
    configuration, model = store.publish(directory, ingredients()).files
    damage(store, model.digest)
    assert store.delete_damaged(KEY, "graph") == 1
    assert object_names(store) == {layout.object_name(configuration.digest)}
    assert store.delete_damaged(KEY, "graph") == 0
    assert store.delete(KEY, "graph")
    store.publish(directory, ingredients())
    assert store.verify(KEY, "graph") == ()


def test_a_manifest_that_lies_about_sizes_deletes_no_sound_object(store: ArtifactStore, directory: Path) -> None:
    """Other entries may use it."""
    store.publish(directory, ingredients())
    name = layout.manifest_name("graph", KEY)
    document = json.loads(store.objects.get(name)[0])
    document["manifest"]["files"][1]["size"] += 1
    store.objects.put(name, json.dumps(document).encode())
    assert [damage.path for damage in store.verify(KEY, "graph")] == ["model.pt"]
    assert store.delete_damaged(KEY, "graph") == 0


def test_with_a_key_only_what_it_signed_is_read(objects: ObjectStore, directory: Path) -> None:
    signed = ArtifactStore(objects, SecretSigner(b"k" * 32))
    other = ArtifactStore(objects, SecretSigner(b"o" * 32))
    published = signed.publish(directory, ingredients())
    assert signed.find(KEY, "graph") == published
    assert ArtifactStore(objects).find(KEY, "graph") == published
    with pytest.raises(SignatureRefused, match="not the configured key"):
        other.find(KEY, "graph")
    assert list(other.entries()) == []

    name = layout.manifest_name("graph", KEY)
    document = json.loads(objects.get(name)[0])
    document["manifest"]["files"][0]["digest"] = "0" * 64
    objects.put(name, json.dumps(document).encode())
    with pytest.raises(SignatureRefused, match="changed"):
        signed.find(KEY, "graph")

    objects.put(name, manifests.encode(published))
    with pytest.raises(SignatureRefused, match="not signed"):
        signed.find(KEY, "graph")


def test_a_publication_replaces_an_entry_that_nobody_has_signed(objects: ObjectStore, directory: Path) -> None:
    ArtifactStore(objects).publish(directory, ingredients())
    signed = ArtifactStore(objects, SecretSigner(b"k" * 32))
    published = signed.publish(directory, ingredients(lnc=1))
    with pytest.raises(SignatureRefused, match="Configure the key that signed it"):
        ArtifactStore(objects, SecretSigner(b"o" * 32)).publish(directory, ingredients())
    assert signed.find(KEY, "graph") == published
    assert published.fields == {"lnc": 1}
