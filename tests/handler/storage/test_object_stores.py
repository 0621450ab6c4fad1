"""What every place for objects must do, asked of each of them."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest

from handler.errors import SettingError
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectStore
from handler.storage.open_store import open_objects
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import (
    AccessDenied,
    Conflict,
    NotFound,
    StoreUnavailable,
    StoreUnusable,
    TooLarge,
    UnsafePath,
)


def test_what_is_put_is_there(objects: ObjectStore) -> None:
    etag = objects.put("a/b", b"one")
    assert objects.get("a/b") == (b"one", etag)
    info = objects.head("a/b")
    assert (info.key, info.size, info.etag) == ("a/b", 3, etag)
    second = objects.put("a/b", b"two!")
    assert second != etag
    assert objects.get("a/b") == (b"two!", second)


def test_what_is_not_there_is_not_found(objects: ObjectStore) -> None:
    with pytest.raises(NotFound, match="nothing/here"):
        objects.get("nothing/here")
    with pytest.raises(NotFound):
        objects.head("nothing/here")
    with pytest.raises(NotFound):
        b"".join(objects.read("nothing/here"))
    objects.delete("nothing/here")
    assert list(objects.list("")) == []


def test_if_absent_takes_the_first_only(objects: ObjectStore) -> None:
    objects.put("lease", b"first", if_absent=True)
    with pytest.raises(Conflict):
        objects.put("lease", b"second", if_absent=True)
    assert objects.get("lease")[0] == b"first"


def test_if_match_takes_the_version_it_saw(objects: ObjectStore) -> None:
    etag = objects.put("lease", b"first")
    newer = objects.put("lease", b"second", if_match=etag)
    with pytest.raises(Conflict):
        objects.put("lease", b"third", if_match=etag)
    with pytest.raises(Conflict):
        objects.delete("lease", if_match=etag)
    assert objects.get("lease") == (b"second", newer)
    objects.delete("lease", if_match=newer)
    with pytest.raises(Conflict):
        objects.put("lease", b"fourth", if_match=newer)
    with pytest.raises(Conflict):
        objects.delete("lease", if_match=newer)


@pytest.mark.slow
def test_of_many_who_write_at_once_one_wins(objects: ObjectStore, again: Callable[[], ObjectStore]) -> None:
    barrier = Barrier(8)

    def attempt(number: int) -> bool:
        mine = again()
        barrier.wait(20)
        try:
            mine.put("lease", f"owner {number}".encode(), if_absent=True)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert won.count(True) == 1
    assert objects.get("lease")[0] == f"owner {won.index(True)}".encode()


def test_listing_is_sorted_and_confined_to_the_prefix(objects: ObjectStore) -> None:
    for key in ("m/b", "m/a", "m/sub/c", "mm/d", "n"):
        objects.put(key, key.encode())
    assert [info.key for info in objects.list("m/")] == ["m/a", "m/b", "m/sub/c"]
    assert [info.key for info in objects.list("m")] == ["m/a", "m/b", "m/sub/c", "mm/d"]
    assert [info.size for info in objects.list("m/sub/")] == [7]
    assert len(list(objects.list(""))) == 5


def test_ranges(objects: ObjectStore) -> None:
    body = os.urandom(3_000_000)
    objects.put("big", body)
    assert b"".join(objects.read("big")) == body
    assert b"".join(objects.read("big", 5, 10)) == body[5:15]
    assert b"".join(objects.read("big", 2_999_990)) == body[-10:]
    assert b"".join(objects.read("big", 0, 0)) == b""


@pytest.mark.slow
def test_upload_of_a_large_file(objects: ObjectStore, tmp_path: Path) -> None:
    body = os.urandom(1_000_000) * 40
    (tmp_path / "large").write_bytes(body)
    objects.upload("objects/large", tmp_path / "large")
    assert b"".join(objects.read("objects/large")) == body
    assert [info.key for info in objects.list("")] == ["objects/large"]


def test_a_large_object_is_not_read_whole(objects: ObjectStore) -> None:
    objects.put("manifest", b"x" * 1001)
    with pytest.raises(TooLarge, match="1,001 bytes"):
        objects.get("manifest", limit=1000)
    assert objects.get("manifest", limit=1001)[0] == b"x" * 1001


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_key_does_not_leave_the_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(UnsafePath):
        DirectoryObjects(tmp_path / "store").put(path, b"x")


def test_a_pipe_in_the_directory_is_no_object(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreUnavailable, match="not a regular file"):
        DirectoryObjects(tmp_path).get("pipe")
    with pytest.raises(StoreUnavailable, match="not a regular file"):
        list(DirectoryObjects(tmp_path).read("pipe"))


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="file is not a directory"):
        open_objects(f"file://{tmp_path}/file")


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    root = os.geteuid() == 0
    tmp_path.chmod(0o500)
    if root:  # who may write anywhere
        os.seteuid(65534)
    try:
        with pytest.raises(AccessDenied, match="allow this user to write"):
            DirectoryObjects(tmp_path / "store").put("a", b"")
    finally:
        if root:
            os.seteuid(0)


def test_a_file_system_that_is_read_only_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(AccessDenied, match="Read-only file system"):
        DirectoryObjects(tmp_path).put("a", b"")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOLCK, errno.ENOSYS])
def test_a_disk_that_stays_unusable_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(StoreUnusable, match=os.strerror(number)):
        DirectoryObjects(tmp_path).put("a", b"", if_absent=True)


def test_objects_in_a_directory_may_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    objects = DirectoryObjects(tmp_path / "store")
    for umask, mode in ((0o022, 0o644), (0o027, 0o640)):
        before = os.umask(umask)
        try:
            objects.put("small", b"x")
            objects.upload("large", tmp_path / "file")
        finally:
            os.umask(before)
        assert [(tmp_path / "store" / name).stat().st_mode & 0o777 for name in ("small", "large")] == [mode, mode]


def test_uris(tmp_path: Path) -> None:
    s3 = open_objects("s3://bucket/a/b/")
    assert isinstance(s3, S3Objects)
    assert (s3.uri, s3.location("k").uri, s3.location("k").key) == ("s3://bucket/a/b", "s3://bucket/a/b/k", "a/b/k")
    local = open_objects(f"file://{tmp_path}/with%20blank")
    assert local.location("k").path == tmp_path / "with blank" / "k"


@pytest.mark.parametrize("uri", ["", "/plain/path", "s3:///x", "file://host/x", "https://bucket/x", "s3://b/x?y=1"])
def test_what_names_no_store_is_refused(uri: str) -> None:
    with pytest.raises(SettingError, match="ENDPOINT_ARTIFACT_STORE"):
        open_objects(uri)
