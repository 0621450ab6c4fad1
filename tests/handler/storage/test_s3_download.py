from __future__ import annotations

import random
import shutil
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Never

import boto3
import pytest

from handler.errors import SettingError, StartFailed
from handler.storage.retry import Retry
from handler.storage.s3_download import PART, download_prefix, split_uri
from handler.storage.transfer import download_directory
from handler.storage.transfer.download_directory import NoSpace
from handler.storage.transfer.download_pool import DownloadPool
from handler.storage.transfer.transfer_progress import ignore_bytes
from tests.aws_keys import KEYS
from tests.handler.artifacts.small_disk import full_disk
from tests.handler.storage.scripted_s3 import ScriptedS3

SETTING = "ENDPOINT_MODEL"
BIG = random.Random(1).randbytes(PART + 100_000)  # two parts
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "weights/model-00001.safetensors": BIG,
    "weights/deep/er/notes \u00e9 #1?.txt": b"nested",
    "empty.txt": b"",
    **{f"shards/{number}.bin": bytes([number]) * (1000 + number) for number in range(20)},
}


@pytest.fixture(autouse=True)
def own_credentials(aws: None) -> None:
    """For every test."""


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """An empty bucket of this test's own."""
    name = f"bucket-{abs(hash(request.node.nodeid))}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="module")
def model_uri(s3_url: str) -> str:
    client = boto3.client("s3", endpoint_url=s3_url, **KEYS)
    client.create_bucket(Bucket="models")
    put(client, "models", {f"llama/v1/{path}": content for path, content in MODEL.items()})
    put(client, "models", {"llama/v1/": b"", "llama/v1/weights/": b"", "llama/v10/other": b"x", "llama/v1": b"x"})
    return "s3://models/llama/v1"


def put(client: Any, bucket: str, objects: dict[str, bytes]) -> None:
    for key, content in objects.items():
        client.put_object(Bucket=bucket, Key=key, Body=content)


def fetch(uri: str, target: Path) -> list[tuple[int, int]]:
    """Downloads; returns the progress that was told."""
    told: list[tuple[int, int]] = []
    retry = Retry(attempts=3, base=0.01)
    download_prefix(uri, target, SETTING, lambda done, total: told.append((done, total)), retry)
    return told


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def everything_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://bucket/a/b", "bucket", "a/b/"),
        ("s3://bucket/a/b/", "bucket", "a/b/"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/with space/é", "bucket", "with space/é/"),
    ],
)
def test_a_uri_is_a_bucket_and_a_prefix(uri: str, bucket: str, prefix: str) -> None:
    assert split_uri(uri, SETTING) == (bucket, prefix)


@pytest.mark.parametrize("prefix", ["run#3/model", "run?3/model"])
def test_a_prefix_may_hold_what_means_something_in_other_urls(prefix: str) -> None:
    assert split_uri(f"s3://bucket/{prefix}", SETTING) == ("bucket", f"{prefix}/")


@pytest.mark.parametrize("uri", ["s3://", "s3:///a/b"])
def test_a_uri_without_a_bucket(uri: str) -> None:
    with pytest.raises(SettingError, match="names no bucket") as caught:
        split_uri(uri, SETTING)
    assert caught.value.setting == SETTING


def test_a_model_arrives_to_the_byte_and_nothing_else_does(s3: Any, model_uri: str, tmp_path: Path) -> None:
    told = fetch(model_uri, tmp_path / "models" / "one")
    assert files_of(tmp_path / "models" / "one") == MODEL
    assert {entry.name for entry in (tmp_path / "models").iterdir()} == {"one", ".one.boot"}
    total = sum(map(len, MODEL.values()))
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_listing_of_several_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {f"{number:02d}.bin": b"%d" % number for number in range(11)}
    with ScriptedS3(objects, page=3) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        fetch("s3://bucket/m", tmp_path / "model")
    assert files_of(tmp_path / "model") == objects


def test_a_second_call_does_not_fetch_again(
    s3: Any, model_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(model_uri, tmp_path / "model")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert fetch(model_uri, tmp_path / "model") == []


def test_what_an_earlier_boot_has_fetched_is_fetched_again(
    s3: Any, model_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is synced: after a crash of the machine a file may have its size, and holes."""
    fetch(model_uri, tmp_path / "model")
    damaged = tmp_path / "model" / next(iter(MODEL))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert fetch(model_uri, tmp_path / "model") == []
    (tmp_path / "boot_id").write_text("another boot")
    monkeypatch.setattr(download_directory, "BOOT_ID", tmp_path / "boot_id")
    assert fetch(model_uri, tmp_path / "model") != []
    assert files_of(tmp_path / "model") == MODEL


def test_a_version_is_fetched_once_and_another_one_beside_it(s3: Any, bucket: str, tmp_path: Path) -> None:
    """An adapter that was updated, or a model that is loaded again."""

    def version() -> Path:
        return download_prefix(f"s3://{bucket}/m", tmp_path / "model", SETTING, ignore_bytes, latest=True)

    put(s3, bucket, {"m/adapter.bin": b"one"})
    first = version()
    (first / "mark").touch()
    assert (version(), (first / "mark").exists()) == (first, True)
    put(s3, bucket, {"m/adapter.bin": b"two"})
    second = version()
    assert [(path / "adapter.bin").read_bytes() for path in (first, second)] == [b"one", b"two"]


def test_two_at_once_end_with_one_whole_model(s3: Any, model_uri: str, tmp_path: Path) -> None:
    both_listed = threading.Barrier(2, timeout=20)

    def download() -> None:
        met = False

        def progress(done: int, total: int) -> None:
            nonlocal met
            if not met:  # neither begins before both have found nothing there
                met = True
                both_listed.wait()

        download_prefix(model_uri, tmp_path / "models" / "one", SETTING, progress)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(download) for _ in range(2)]:
            future.result(30)
    assert files_of(tmp_path / "models" / "one") == MODEL
    assert {entry.name for entry in (tmp_path / "models").iterdir()} == {"one", ".one.boot"}


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "/outside", "a/..", "a//b", "./b", "d/" * 70 + "b"])
def test_a_key_that_leads_out_is_refused_and_nothing_is_written(s3: Any, bucket: str, tmp_path: Path, key: str) -> None:
    put(s3, bucket, {"m/config.json": b"{}", f"m/{key}": b"x"})
    with pytest.raises(SettingError) as caught:
        fetch(f"s3://{bucket}/m", tmp_path / "scratch" / "model")
    assert key in caught.value.message
    assert everything_below(tmp_path) == []


def test_a_key_that_is_a_file_and_a_folder_is_refused(s3: Any, bucket: str, tmp_path: Path) -> None:
    put(s3, bucket, {"m/config.json": b"{}", "m/a": b"x", "m/a/b": b"y"})
    with pytest.raises((SettingError, StartFailed), match="m/a"):
        fetch(f"s3://{bucket}/m", tmp_path / "model")


def test_a_missing_bucket_names_the_bucket_and_the_permissions(s3: Any, tmp_path: Path) -> None:
    with pytest.raises(StartFailed) as caught:
        fetch("s3://no-such-bucket/m", tmp_path / "model")
    for part in ("no-such-bucket", "NoSuchBucket", "AWS_REGION"):
        assert part in caught.value.message
    assert everything_below(tmp_path) == []


@pytest.mark.parametrize("key", ["other/config.json", "m/", "m", "mm/config.json"])
def test_a_prefix_without_files(s3: Any, bucket: str, tmp_path: Path, key: str) -> None:
    put(s3, bucket, {key: b"x"})
    with pytest.raises(SettingError, match="no objects") as caught:
        fetch(f"s3://{bucket}/m", tmp_path / "model")
    assert caught.value.setting == SETTING


def test_a_model_that_does_not_fit_is_refused_before_a_byte_is_fetched(
    s3: Any, model_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(SettingError) as caught:
        fetch(model_uri, tmp_path / "scratch" / "model")
    assert caught.value.setting == "ENDPOINT_SCRATCH"
    assert "MB" in caught.value.message
    assert everything_below(tmp_path) == ["scratch"]


def test_room_is_counted_without_what_a_killed_download_left(
    s3: Any, model_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left() -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.name == "part"]

    def killed(*_: object, **__: object) -> Never:
        (directory,) = tmp_path.glob(".model-*.incoming")
        (directory / "part").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DownloadPool, "download", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch(model_uri, tmp_path / "model")
    assert left()
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1 << (10 if left() else 40)))
    fetch(model_uri, tmp_path / "model")
    assert (tmp_path / "model").is_dir()


def test_a_disk_that_fills_up_meanwhile_is_named_with_its_setting(s3: Any, model_uri: str, tmp_path: Path) -> None:
    with full_disk(), pytest.raises(NoSpace, match=r"ENDPOINT_SCRATCH: .*filled up \(File too large"):
        fetch(model_uri, tmp_path / "model")


def test_a_refused_object_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedS3({"config.json": b"{}", "weights": b"0123456789"}, denied="weights") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(StartFailed) as caught:
            fetch("s3://bucket/m", tmp_path / "models" / "one")
    assert "403" in caught.value.message
    assert "s3:GetObject" in caught.value.message
    assert everything_below(tmp_path) == ["models"]


def test_an_object_that_changes_size_while_it_is_fetched_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedS3({"config.json": b"{}", "weights": b"0123456789"}, shrunk="weights") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(StartFailed, match="of 10 bytes"):
            fetch("s3://bucket/m", tmp_path / "models" / "one")
    assert everything_below(tmp_path) == ["models"]
