"""What ends a batch, over a scripted engine; and the store, in a directory and in S3."""

from __future__ import annotations

import errno
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import boto3
import msgspec
import pytest

from handler.batches import batch_input, batch_run, batch_runner
from handler.batches.batch_objects import BatchEnded, BatchObject, BatchStatus
from handler.batches.batch_runner import MAX_RESUMES, BatchRunner
from handler.batches.batch_store import BatchStore
from handler.batches.batches import Batches, BatchFields
from handler.config.endpoint_config import EndpointConfig
from handler.errors import NothingStored
from handler.schemas.openai.completion import CompletionReply
from handler.startup.admission import Admission
from handler.startup.lifecycle import Lifecycle
from handler.startup.serving_state import ServingState
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.open_store import open_objects
from handler.storage.storage_errors import StoreUnavailable
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.loops import end_loop
from tests.handler.waiting import WITHIN, eventually


@pytest.fixture
def state() -> Iterator[ServingState]:
    engine = ScriptedEngine()
    state = ServingState(EndpointConfig(model="scripted"), engine.loop, Lifecycle(), Admission(4))
    state.engine = engine  # type: ignore[assignment]  # a stand-in
    state.lifecycle.ready()
    yield state
    end_loop(engine.loop)


@pytest.fixture
def batches(state: ServingState, tmp_path: Path) -> Batches:
    return Batches(state, str(tmp_path))


def create(batches: Batches, *prompts: str) -> BatchObject:
    rows = [
        {"custom_id": prompt, "method": "POST", "url": "/v1/completions", "body": {"prompt": prompt}}
        for prompt in prompts
    ]
    file = batches.add_file("input", "batch", b"\n".join(map(msgspec.json.encode, rows)))
    return batches.create(
        BatchFields(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", metadata=None)
    )


def ran(batches: Batches, state: ServingState, batch: BatchObject) -> BatchObject:
    """The batch after all batches have been run, in this thread."""
    BatchRunner(state, batches.store)._run_all()
    return batches.store.batch(batch.id)


def test_an_expired_batch_says_what_was_not_run(batches: Batches, state: ServingState) -> None:
    batch = create(batches, "a", "b")
    batches.store.save(msgspec.structs.replace(batch, expires_at=1))
    ended = ran(batches, state, batch)
    assert (ended.status, ended.output_file_id, ended.request_counts.failed) == (BatchStatus.EXPIRED, None, 2)
    assert ended.error_file_id is not None
    rows = b"".join(batches.store.content(ended.error_file_id)).splitlines()
    assert {json.loads(row)["error"]["code"] for row in rows} == {"batch_expired"}


def test_an_expired_batch_stays_so_if_its_end_is_stored_later(
    batches: Batches, state: ServingState, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = create(batches, "a", "b")
    batches.store.save(msgspec.structs.replace(batch, expires_at=1))
    with monkeypatch.context() as broken:
        broken.setattr(BatchStore, "add_file", unavailable)
        assert not ran(batches, state, batch).status.ended
    ended = ran(batches, state, batch)
    assert (ended.status, ended.request_counts.failed) == (BatchStatus.EXPIRED, 2)


def test_a_batch_whose_file_was_deleted_has_failed(batches: Batches, state: ServingState) -> None:
    batch = create(batches, "a")
    batches.store.delete_file(batch.input_file_id)
    ended = ran(batches, state, batch)
    assert (ended.status, ended.errors and ended.errors["data"][0]["code"]) == (BatchStatus.FAILED, "not_found")


def test_a_batch_that_ends_the_engine_again_and_again_has_failed(batches: Batches, state: ServingState) -> None:
    batch = create(batches, "a").entered(BatchStatus.IN_PROGRESS, resumes=MAX_RESUMES - 1)
    batches.store.save(batch)
    ended = ran(batches, state, batch)
    assert (ended.status, ended.errors and ended.errors["data"][0]["code"]) == (BatchStatus.FAILED, "engine_failed")
    batches.store.save(batch)
    batches.store.add_replies(batch.id, [b'{"custom_id":"x","error":null,"response":{"status_code":200}}'])
    assert ran(batches, state, batch).status is BatchStatus.COMPLETED  # a reply since then: the batch goes on


def test_a_dead_engine_leaves_the_batch_for_the_next_start(batches: Batches, state: ServingState) -> None:
    batch = create(batches, "a")
    assert isinstance(state.engine, ScriptedEngine)
    state.engine.is_dead = True
    assert ran(batches, state, batch).status is BatchStatus.IN_PROGRESS
    state.engine.is_dead = False
    assert ran(batches, state, batch).status is BatchStatus.COMPLETED


@pytest.mark.parametrize("stalled", [True, False])
def test_a_batch_has_failed_after_stalls_and_goes_on_after_drains(
    batches: Batches, state: ServingState, *, stalled: bool
) -> None:
    assert isinstance(state.engine, ScriptedEngine)
    batch = create(batches, "<gate:end>")
    for _ in range(MAX_RESUMES):
        running = threading.Thread(target=ran, args=(batches, state, batch))
        running.start()
        eventually(lambda: state.unfinished() == 1)
        if stalled:  # the watchdog has seen it, and the engine still lives
            state.lifecycle.fail("the engine made no progress")
        else:
            state.lifecycle.drain()
            state.engine.is_dead = True  # nothing waits for the batch before it ends the core
        running.join(WITHIN)
        state.engine.is_dead = False
        eventually(lambda: state.unfinished() == 0)
        state.lifecycle = Lifecycle()
        state.lifecycle.ready()
    state.engine.open("end")
    assert ran(batches, state, batch).status is (BatchStatus.FAILED if stalled else BatchStatus.COMPLETED)


@pytest.mark.parametrize("fault", ["beginning a request", "making its reply", "reading the input"])
def test_a_fault_of_ours_ends_one_batch_and_no_other(
    batches: Batches, state: ServingState, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Never:
        raise TypeError("a fault")

    with monkeypatch.context() as patch:
        if fault == "beginning a request":
            patch.setattr(batch_run, "parse_route", broken)
        elif fault == "making its reply":
            patch.setattr(CompletionReply, "whole", broken)
        else:
            patch.setattr(batch_runner, "read_lines", broken)
        ended = ran(batches, state, create(batches, "a"))
    if fault == "reading the input":
        assert ended.status is BatchStatus.FAILED
        assert ended.errors is not None
        assert ended.errors["data"][0]["code"] == "internal_error"
    else:
        assert (ended.status, ended.request_counts.failed, ended.output_file_id) == (BatchStatus.COMPLETED, 1, None)
    assert ran(batches, state, create(batches, "b")).request_counts.completed == 1


def test_one_that_is_cancelled_while_its_input_is_read_is_not_run(
    batches: Batches, state: ServingState, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, read = create(batches, "a"), batch_input.read_lines

    def cancelled(*arguments: Any) -> Any:
        batches.cancel(batch.id)
        return read(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(batch_runner, "read_lines", cancelled)
        ended = ran(batches, state, batch)
    assert (ended.status, ended.request_counts.completed) == (BatchStatus.CANCELLED, 0)
    assert ended.cancelling_at is not None


def test_one_that_waits_behind_another_is_cancelled_at_once(batches: Batches, state: ServingState) -> None:
    assert isinstance(state.engine, ScriptedEngine)
    first, second = create(batches, "<gate:end>"), create(batches, "a")
    batches.start()
    eventually(lambda: state.unfinished() == 1)
    cancelled = batches.cancel(second.id)
    assert (cancelled.status, cancelled.request_counts.total) == (BatchStatus.CANCELLED, 1)
    assert cancelled.cancelling_at is not None
    assert batches.get(first.id).status is BatchStatus.IN_PROGRESS
    with pytest.raises(BatchEnded):
        batches.cancel(second.id)
    state.engine.open("end")
    eventually(lambda: batches.get(first.id).status is BatchStatus.COMPLETED)
    state.lifecycle.drain()
    assert batches.get(second.id) == cancelled


@pytest.mark.parametrize("content", [b"{", b'{"id": "\xff"}', None])
def test_one_that_cannot_be_read_holds_up_no_other(
    batches: Batches, state: ServingState, tmp_path: Path, content: bytes | None
) -> None:
    record = tmp_path / "batches" / create(batches, "a").id / "batch.json"
    if content is None:
        record.unlink()
        record.mkdir()
        (record / "batch.json").touch()
    else:
        record.write_bytes(content)
    assert ran(batches, state, create(batches, "b")).status is BatchStatus.COMPLETED


def test_an_object_that_is_no_batch_holds_up_no_batch(batches: Batches, state: ServingState, tmp_path: Path) -> None:
    batch = create(batches, "a")
    for copied in (f"archive/{batch.id}", "0000"):
        directory = tmp_path / "batches" / copied
        directory.mkdir(parents=True)
        (directory / "batch.json").write_bytes((tmp_path / "batches" / batch.id / "batch.json").read_bytes())
    assert ran(batches, state, batch).status is BatchStatus.COMPLETED


def unavailable(*_: object) -> Never:
    raise StoreUnavailable("the store", "down")


def test_an_error_of_the_store_leaves_no_request_in_the_engine(
    batches: Batches, state: ServingState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(state.engine, ScriptedEngine)
    state.engine.slots = 6
    batch = create(batches, "<hold>", "a")
    with monkeypatch.context() as patch, suppress(StoreUnavailable):
        patch.setattr(batches.store, "add_replies", unavailable)
        ran(batches, state, batch)
    assert state.engine.begun == 2
    eventually(lambda: state.unfinished() == 0)


def test_an_outage_of_the_store_is_no_start(
    batches: Batches, state: ServingState, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, runner = create(batches, "a"), BatchRunner(state, batches.store)
    batches.store.save(batch.entered(BatchStatus.IN_PROGRESS))
    with monkeypatch.context() as patch:
        patch.setattr(batches.store, "add_replies", unavailable)
        for _ in range(MAX_RESUMES + 1):
            with suppress(StoreUnavailable):
                runner._run_all()
    waiting = batches.store.batch(batch.id)
    assert (waiting.status, waiting.resumes) == (BatchStatus.IN_PROGRESS, 1)
    runner._run_all()
    assert batches.store.batch(batch.id).status is BatchStatus.COMPLETED


@pytest.mark.parametrize("full", [True, False])
def test_an_end_that_is_tried_again_writes_each_file_once(
    batches: Batches, state: ServingState, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    batch, save = create(batches, "a", "<fail>"), batches.store.save

    def full_disk() -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    def save_but_the_end(saved: BatchObject) -> None:
        if saved.status is BatchStatus.COMPLETED:
            unavailable()
        save(saved)

    with monkeypatch.context() as patch:
        if full:
            patch.setattr(tempfile, "NamedTemporaryFile", full_disk)
        else:
            patch.setattr(batches.store, "save", save_but_the_end)
        assert ran(batches, state, batch).status is BatchStatus.IN_PROGRESS
    ended = ran(batches, state, batch)
    assert (ended.status, ended.request_counts.completed, ended.request_counts.failed) == (BatchStatus.COMPLETED, 1, 1)
    assert {*batches.store.file_ids()} == {ended.input_file_id, ended.output_file_id, ended.error_file_id}
    assert None not in (ended.output_file_id, ended.error_file_id)


@pytest.mark.parametrize("damaged", [True, False])
def test_one_whose_input_cannot_be_read_holds_up_no_other(
    batches: Batches, state: ServingState, tmp_path: Path, *, damaged: bool
) -> None:
    unread, other = create(batches, "a"), create(batches, "b")
    file = tmp_path / "files" / unread.input_file_id
    if damaged:
        (file / "file.json").write_bytes(b"{")
    else:
        (file / "content").unlink()
        (file / "content").symlink_to("content")  # OSError: too many levels of links
    assert ran(batches, state, other).status is BatchStatus.COMPLETED
    waiting = batches.store.batch(unread.id)
    assert waiting.status is (BatchStatus.FAILED if damaged else BatchStatus.VALIDATING)
    assert not damaged or (waiting.errors and waiting.errors["data"][0]["code"] == "record_damaged")


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchStore:
    if request.param == "directory":
        return BatchStore(DirectoryObjects(tmp_path))
    url = request.getfixturevalue("s3_url")
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket=tmp_path.name.replace("_", "-").lower())
    return BatchStore(open_objects(f"s3://{tmp_path.name.replace('_', '-').lower()}/batches"))


def test_files_and_replies_in_a_store(store: BatchStore) -> None:
    files = [store.add_file("f", "batch", [b"a", b"b"]) for _ in range(2)]
    assert store.file_ids() == [files[1].id, files[0].id]
    assert (b"".join(store.content(files[0].id)), store.file(files[0].id)) == (b"ab", files[0])
    store.delete_file(files[0].id)
    with pytest.raises(NothingStored):
        store.content(files[0].id)
    for number in range(12):
        store.add_replies("batch_1", [str(number).encode(), b"x"])
    assert [*store.replies("batch_1")][::2] == [str(number).encode() for number in range(12)]
