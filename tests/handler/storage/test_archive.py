"""Archives of others: the right ones are unpacked, and of the others nothing is left anywhere."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from handler.storage import archive
from handler.storage.archive import unpack
from handler.storage.storage_errors import UnsafeArchive

FILES = {"neuron_config.json": b"{}", "model.pt": b"graph" * 5000, "weights/tp0.safetensors": b"w" * 70_000}


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def tar(*members: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as made:
        for one in members:
            info, body = (one, b"\0" * one.size) if isinstance(one, tarfile.TarInfo) else (member(one[0]), one[1])
            info.size = len(body)
            made.addfile(info, io.BytesIO(body))
    return file.getvalue()


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Unpacks what must be refused, and checks that nothing is left of it; gives the error's text."""

    def check(body: bytes) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UnsafeArchive) as caught:
            unpack(io.BytesIO(body), tmp_path / "fresh", "s3://b/model.tar.gz")
        assert sorted(tmp_path.rglob("*")) == before
        assert "s3://b/model.tar.gz" in caught.value.message
        return caught.value.problem

    return check


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["tar", "tar.gz"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_plain_files_are_unpacked(tmp_path: Path, compress: Callable[[bytes], bytes], form: int, prefix: str) -> None:
    root = [member("./", tarfile.DIRTYPE), member(f"{prefix}weights/", tarfile.DIRTYPE)]
    body = tar(*root, *((prefix + name, content) for name, content in FILES.items()), form=form)
    unpack(io.BytesIO(compress(body)), tmp_path / "fresh", "model.tar.gz")
    found = {
        path.relative_to(tmp_path / "fresh").as_posix(): path.read_bytes()
        for path in (tmp_path / "fresh").rglob("*")
        if path.is_file()
    }
    assert found == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["fresh"]


@pytest.mark.parametrize("name", ["../outside", "/abs", "a/../../b", "a\\b", "a//../b", "..", "x\n", "./../x"])
def test_a_path_that_leaves_is_refused(refused: Callable[..., str], name: str) -> None:
    assert "member" in refused(tar(("good", b"x"), (name, b"evil")))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a device"),
    ],
)
def test_links_and_devices_are_refused(refused: Callable[..., str], kind: bytes, said: str) -> None:
    assert said in refused(tar(("good", b"x"), member("odd", kind, "/etc/passwd")))


def test_writing_through_a_link_is_not_possible(refused: Callable[..., str]) -> None:
    refused(tar(member("dir", tarfile.SYMTYPE, "/tmp"), ("dir/file", b"x")))


@pytest.mark.parametrize(
    "members",
    [
        [("a", b"1"), ("a", b"2")],
        [("a", b"1"), ("./a", b"2")],
        [("A", b"1"), ("a", b"2")],
        [("a", b"1"), ("a/b", b"2")],
        [("a/b", b"1"), ("a", b"2")],
    ],
)
def test_members_that_clash_are_refused(refused: Callable[..., str], members: list[tuple[str, bytes]]) -> None:
    refused(tar(*members))


def test_a_sparse_file_is_refused(refused: Callable[..., str]) -> None:
    """A few bytes that claim to be a terabyte."""
    info = member("huge")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "huge",
        "GNU.sparse.realsize": str(2**40),
    }
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        content = b"1\n0\n1\n".ljust(512, b"\0") + b"x"
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
    assert "sparse" in refused(file.getvalue())


def test_the_map_of_a_sparse_file_is_not_read(refused: Callable[..., str]) -> None:
    """Each block says that another follows: a list without an end."""
    header = bytearray(member("holes", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert "'holes' is a sparse file" in refused(bytes(header) + (b"%011o\0" % 1 * 42 + b"\1" * 8) * 100)


def extended(kind: bytes, body: bytes) -> bytes:
    return member("x", kind, size=len(body)).tobuf(tarfile.GNU_FORMAT) + body + b"\0" * (-len(body) % 512)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_of_headers_are_refused(refused: Callable[..., str], kind: bytes) -> None:
    assert "RecursionError" in refused(extended(kind, b"11 path=ab\n") * 2000 + tar(("good", b"x")))


def test_headers_that_would_fill_the_memory_together_are_refused(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_HEADER_BYTES", 20_000)
    members = [
        extended(tarfile.XGLTYPE, b"1010 k%d=" % key + b"v" * 1001 + b"\n") + tar((f"f{key}", b""))[:512]
        for key in range(10, 40)
    ]
    assert "headers of 20,2" in refused(b"".join(members))


def test_what_a_killed_process_had_unpacked_is_removed(tmp_path: Path) -> None:
    left, other = tmp_path / ".fresh-a1b2c3d_", tmp_path / ".fresh-er-a1b2c3d4"
    for directory in (left, other):
        directory.mkdir()
    unpack(io.BytesIO(tar(("a", b"x"))), tmp_path / "fresh", "model.tar.gz")
    assert {path.name for path in tmp_path.iterdir()} == {"fresh", other.name}


def test_more_bytes_than_there_is_room_for_are_refused(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    assert "10,000 bytes" in refused(gzip.compress(tar(("a", b"\0" * 9000), ("b", b"\0" * 9000))))


def test_a_size_that_is_claimed_is_refused_before_it_is_written(refused: Callable[..., str]) -> None:
    header = member("huge", size=2**50).tobuf(tarfile.GNU_FORMAT)
    assert "bytes" in refused(header + b"\0" * 2048)


def test_a_negative_size_is_refused(refused: Callable[..., str]) -> None:
    info = member("odd")
    info.pax_headers = {"size": "-1000000"}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(info)
    refused(file.getvalue())


def test_too_many_members_are_refused(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 5)
    assert "more than 5" in refused(tar(*((f"f{number}", b"") for number in range(6))))
    assert "more than 5" in refused(tar(*(member("./", tarfile.DIRTYPE) for _ in range(6))))


def test_a_header_that_would_fill_the_memory_is_refused(refused: Callable[..., str]) -> None:
    for kind in archive.HEADERS:
        header = member("x", kind, size=2**33).tobuf(tarfile.GNU_FORMAT)
        assert "a header of 8,589,934,592 bytes" in refused(header + b"a" * 4096)


@pytest.mark.parametrize("keep", [1, 300, 600, 1200, -600, -9, -1])
def test_an_archive_that_was_cut_off_is_refused(refused: Callable[..., str], keep: int) -> None:
    whole = gzip.compress(tar(*((name, bytes(range(256)) * 40) for name in "abc")), compresslevel=0)
    assert refused(whole[:keep])


@pytest.mark.parametrize("body", [b"", b"not a tar", b"\x1f\x8b", gzip.compress(b"not a tar" * 200, mtime=0)])
def test_what_is_no_tar_is_refused(refused: Callable[..., str], body: bytes) -> None:
    refused(body)


def test_a_flipped_bit_is_found_by_gzips_checksum(refused: Callable[..., str]) -> None:
    body = bytearray(gzip.compress(tar(("a", b"\0" * 100_000)), compresslevel=0))
    body[50_000] ^= 1
    refused(bytes(body))


def test_what_goes_on_after_the_end_is_not_read_for_ever(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_AFTER", 4 * archive.CHUNK)
    assert "follow" in refused(gzip.compress(tar(("a", b"x")) + bytes(8 * archive.CHUNK)))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    with pytest.raises(UnsafeArchive, match="already exists"):
        unpack(io.BytesIO(tar(("a", b"x"))), tmp_path / "fresh", "m")
    assert list((tmp_path / "fresh").iterdir()) == []
