from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from handler.artifacts.store import manifest as manifests
from handler.artifacts.store.manifest import PART_SIZE, FileEntry, Manifest
from handler.storage.storage_errors import InvalidManifest, TooLarge, UnknownSchema

D = "0123456789abcdef" * 4
MANIFEST = Manifest(
    key="b" * 64,
    kind="graph",
    fields={"lnc": 2, "versions": {"neuronx-cc": "2.26"}, "none": None, "list": [1, 2.5, "x"]},
    files=(FileEntry("neuron_config.json", 10, D), FileEntry("model.pt", PART_SIZE + 1, D, (D, D))),
    created=1700000000.25,
    compile_seconds=900.5,
    machine={"instance": "trn1.32xlarge"},
)


def document(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(manifests.encode(MANIFEST))
    value["manifest"].update(changes)
    return value


def read(value: Any) -> Manifest:
    return manifests.decode(value if isinstance(value, bytes) else json.dumps(value).encode(), "s3://b/m.json")


def test_what_is_written_is_read() -> None:
    assert manifests.decode(manifests.encode(MANIFEST), "x") == MANIFEST


def file(**changes: Any) -> list[dict[str, Any]]:
    return [{"path": "a", "size": 1, "digest": D, **changes}]


@pytest.mark.parametrize(
    "files",
    [
        file(path="../x"),
        file(path="/etc/passwd"),
        file(path="a\\b"),
        file(path="a\0b"),
        file(path=""),
        file(path=7),
        file() + file(),
        file(path="A") + file(path="a"),
        file(path="a/b") + file(path="a"),
        file(size=-1),
        file(size=1.5),
        file(size=2**60),
        file(size="1"),
        file(digest="xyz"),
        file(digest=D[:-1]),
        file(digest=D + "0"),
        file(digest=D.upper()),
        file(digest=D + "\n"),
        file(parts=[D, D]),
        file(size=PART_SIZE + 1),
        file(size=PART_SIZE + 1, parts=[D, "x"]),
        file(link="/etc/passwd"),
        [{"path": "a"}],
        "files",
        None,
    ],
    ids=lambda files: ascii(files)[:60],
)
def test_files_that_cannot_be_trusted_are_refused(files: Any) -> None:
    with pytest.raises(InvalidManifest) as caught:
        read(document(files=files))
    assert "s3://b/m.json" in caught.value.message


@pytest.mark.parametrize(
    "changes",
    [{"key": "x"}, {"kind": "other"}, {"fields": []}, {"machine": {"a": 1}}, {"created": "now"}, {"surplus": 1}],
    ids=str,
)
def test_other_fields_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidManifest):
        read(document(**changes))


@pytest.mark.parametrize("schema", [0, 2, 10**30, "1", None])
def test_another_schema_is_named(schema: Any) -> None:
    with pytest.raises(InvalidManifest) as caught:
        read({**document(), "schema": schema})
    if isinstance(schema, int) and schema < 100:
        assert isinstance(caught.value, UnknownSchema)
        assert str(schema) in caught.value.message


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[1]", b"\xff\xfe", b"{}", b'{"schema":1}', b'{"schema":1,"manifest":3}', b"[" * 100_000],
    ids=lambda body: ascii(body)[:30],
)
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidManifest):
        read(body)


def test_ten_million_files_are_refused_before_they_are_parsed() -> None:
    entry = json.dumps(file()[0]).encode() + b","
    body = b'{"schema":1,"manifest":{"files":[' + entry * (manifests.MOST_BYTES // len(entry) + 1)
    with pytest.raises(TooLarge):
        read(body)


@pytest.mark.parametrize(
    "part",
    [
        b'{"path":"","size":0,"digest":"' + D.encode() + b'"}',  # the smallest that passes for a file
        b"{}",
        b"[]",
        b'{"path":"x"}',
    ],
)
@pytest.mark.slow
def test_a_manifest_of_the_largest_size_takes_bounded_memory(part: bytes) -> None:
    """Memory is what a hostile manifest is after: 32 MB of JSON may become a few times as much, and no more."""
    count = (manifests.MOST_BYTES - 2000) // (len(part) + 1)
    frame = document(files=["here"])
    body = json.dumps(frame).encode().replace(b'["here"]', b"[" + b",".join([part] * count) + b"]")
    tracemalloc.start()
    with pytest.raises(InvalidManifest, match="files"):
        read(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * manifests.MOST_BYTES


@pytest.mark.parametrize("name", ["fields", "machine"])
def test_large_fields_are_refused_without_being_decoded(name: str) -> None:
    body = json.dumps(document(**{name: {"x": "here"}})).encode().replace(b'"here"', b"[" + b"[]," * 4_000_000 + b"[]]")
    tracemalloc.start()
    with pytest.raises(InvalidManifest):
        read(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(body)


def with_fields(fields: str) -> bytes:
    return json.dumps(document(fields="here")).replace('"here"', fields).encode()


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


def many(count: int) -> str:
    return json.dumps({str(number): 1 for number in range(count)})


@pytest.mark.parametrize(
    "fields",
    [
        nested(manifests.DEEPEST_FIELD + 1),
        nested(500),
        f'{{"a": {nested(manifests.DEEPEST_FIELD, "[", "]")}}}',
        many(manifests.MOST_FIELDS),
        json.dumps({"a": [0] * manifests.MOST_FIELDS}),
    ],
    ids=["one too deep", "500 deep", "lists", "one too many", "a long list"],
)
def test_fields_that_are_too_deep_or_too_many_are_refused(fields: str) -> None:
    with pytest.raises(InvalidManifest, match="fields"):
        read(with_fields(fields))


@pytest.mark.parametrize(
    "fields", [nested(manifests.DEEPEST_FIELD), many(manifests.MOST_FIELDS - 1)], ids=["deep", "many"]
)
def test_fields_up_to_the_limits_are_read(fields: str) -> None:
    assert read(with_fields(fields)).fields == json.loads(fields)


def test_more_files_than_any_entry_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MOST_FILES", 3)
    with pytest.raises(InvalidManifest, match="4 files"):
        read(document(files=[{"path": str(number), "size": 1, "digest": D} for number in range(4)]))
