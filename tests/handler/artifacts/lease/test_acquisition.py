"""The way of a start to its artifacts, in one process and without waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import MOST_COMPARED, Acquisition, AcquisitionOptions, Entries, OnMiss
from handler.artifacts.lease.compile_errors import AcquireTimedOut, CompileFailed, FailedBefore, NoEntry
from handler.artifacts.lease.lease import Contender
from handler.artifacts.lease.negative_entries import SECONDS, name_of
from handler.artifacts.restore.restore import RestoreOptions, restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest_signature import SecretSigner
from handler.artifacts.store.object_names import manifest_name, object_name
from handler.json_value import Json
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.retry import Retry
from handler.storage.storage_errors import (
    AccessDenied,
    CredentialsRefused,
    DigestMismatch,
    EntryDamaged,
    NotFound,
    SignatureRefused,
    StoreUnavailable,
)
from tests.handler.artifacts.acquire_program import Acquired, Compilation, acquire
from tests.handler.artifacts.artifact_files import write_artifacts
from tests.handler.artifacts.manual_time import ManualTime

GRAPH = ArtifactKey("graph", "a" * 64, {"engine_args": {"max_model_len": 8192}})
OTHER = ArtifactKey("graph", "c" * 64, {"engine_args": {"max_model_len": 4096}})
WEIGHTS = ArtifactKey("weights", "b" * 64, {"engine_args": {"max_model_len": 8192}})
QUICK = RestoreOptions(retry=Retry(attempts=2, base=0))


class Objects(DirectoryObjects):
    """A store that a test can break, by verb and prefix of the key."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.broken: dict[tuple[str, str], Exception] = {}
        self.asked: list[str] = []

    def _break(self, verb: str, key: str) -> None:
        self.asked.append(f"{verb} {key.split('/')[0]}")
        for (broken, prefix), error in self.broken.items():
            if broken == verb and key.startswith(prefix):
                raise error

    def get(self, key: str, *, limit: int = 1 << 20) -> tuple[bytes, str]:
        self._break("get", key)
        return super().get(key, limit=limit)

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        self._break("put", key)
        return super().put(key, body, if_absent=if_absent, if_match=if_match)

    def upload(self, key: str, path: Path) -> None:
        self._break("upload", key)
        super().upload(key, path)


class Start:
    """One instance: everything that is injected, within reach of the test."""

    def __init__(self, objects: Objects, directory: Path, time: ManualTime) -> None:
        self.objects, self.time, self.target = objects, time, directory / "artifacts"
        self.store = ArtifactStore(objects)
        self.events: list[Mapping[str, Json]] = []
        self.compiled: list[Compilation] = []
        self.compile: Callable[[Compilation], None] = lambda compilation: None
        self.restore_errors: list[Exception] = []
        self.environ = {"HF_TOKEN": "hf_abcdefgh1234", "MY_SECRET": "open sesame"}

    def run(self, *keys: ArtifactKey, on_miss: OnMiss = OnMiss.COMPILE, deadline: float = 600.0) -> Acquired:
        def compile(compilation: Compilation) -> None:
            self.compiled.append(compilation)
            write_artifacts(compilation.directory)
            self.compile(compilation)

        search = Acquisition(
            self.store,
            keys or (GRAPH, WEIGHTS),
            self.time.now() + deadline,
            AcquisitionOptions(on_miss=on_miss, machine={"instance": "trn1.2xlarge"}, environ=self.environ),
            emit=self.events.append,
            clock=self.time,
            random=Random(0),
        )

        def bring(entries: Entries, target: Path) -> None:
            if self.restore_errors:
                raise self.restore_errors.pop(0)
            restore(entries, source_of(self.store), target, options=QUICK)

        return acquire(search, bring, compile, self.target)

    def told(self, event: str) -> list[Mapping[str, Json]]:
        return [told for told in self.events if told["event"] == event]


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "store")


@pytest.fixture
def start(objects: Objects, tmp_path: Path, time: ManualTime) -> Start:
    return Start(objects, tmp_path / "one", time)


@pytest.fixture
def second(objects: Objects, tmp_path: Path, time: ManualTime) -> Start:
    return Start(objects, tmp_path / "two", time)


def fail(reason: str, log: str = "") -> Callable[[Compilation], None]:
    def compile(compilation: Compilation) -> None:
        raise CompileFailed(reason, log)

    return compile


def test_compiled_once_and_then_restored(start: Start, second: Start) -> None:
    first = start.run()
    assert (first.compiled, first.published) == (True, True)
    assert (first.path / "weights/tp0_sharded_checkpoint.safetensors").exists()
    then = second.run()
    assert (then.compiled, then.path) == (False, second.target)
    assert not second.compiled
    assert (then.path / "model.pt").read_bytes() == (first.path / "model.pt").read_bytes()


def test_weights_of_a_graph_that_is_there_are_all_that_is_published(start: Start, second: Start) -> None:
    start.run(GRAPH)
    acquired = second.run(GRAPH, WEIGHTS)
    assert second.compiled[0].missing == (WEIGHTS,)
    assert acquired.published
    assert [event["key"] for event in second.told("artifact_published")] == [WEIGHTS.digest]


def test_a_miss_in_a_large_store_reads_the_newest_entries(start: Start, second: Start, objects: Objects) -> None:
    for number in range(3 * MOST_COMPARED):
        objects.put(manifest_name("graph", f"{number:064x}"), b"{}")
    start.run(OTHER)
    objects.asked.clear()
    second.run(GRAPH)
    assert second.told("artifact_miss")[0]["fields"] == ["max_model_len"]
    assert MOST_COMPARED <= objects.asked.count("get manifests") < 2 * MOST_COMPARED


def test_no_entry_of_others_ends_a_start(
    start: Start, second: Start, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a hostile writer puts into the store is not this start's."""
    start.run(OTHER)
    name = manifest_name("graph", OTHER.digest)
    nested = b'{"a":' * 990 + b"1" + b"}" * 990
    body = objects.get(name)[0]
    fields = json.dumps(OTHER.fields, separators=(",", ":")).encode()
    assert fields in body
    objects.put(name, body.replace(fields, nested))
    assert second.run(GRAPH).published
    assert second.told("artifact_miss")[0]["nearest"] is None

    def fails(*arguments: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("handler.artifacts.lease.acquisition.explain", fails)
    assert second.run(WEIGHTS).published
    assert "recursion" in str(second.told("artifact_miss")[-1]["problem"])


def test_on_miss_fail(start: Start, second: Start) -> None:
    start.run(OTHER)
    with pytest.raises(NoEntry, match=r"max_model_len 4096 -> 8192.*ENDPOINT_ON_MISS to 'compile'"):
        second.run(GRAPH, on_miss=OnMiss.FAIL)
    assert not second.compiled


def test_after_a_signing_key_is_set_a_start_compiles_and_replaces_what_is_not_signed(
    start: Start, second: Start, objects: Objects
) -> None:
    start.run()
    second.store = ArtifactStore(objects, SecretSigner(b"k" * 32))
    for on_miss in (OnMiss.FAIL, OnMiss.WAIT):
        with pytest.raises(SignatureRefused, match=r"not signed.*ENDPOINT_ON_MISS=compile replaces it"):
            second.run(on_miss=on_miss)
    assert second.run().published
    assert [event["key"] for event in second.told("artifact_signature_refused")] == [GRAPH.digest, WEIGHTS.digest]
    assert "not signed" in str(second.told("artifact_signature_refused")[0]["problem"])
    assert not second.run(on_miss=OnMiss.FAIL).compiled
    start.store = ArtifactStore(objects, SecretSigner(b"w" * 32))  # a typing error, or another team's
    with pytest.raises(SignatureRefused, match=r"not the configured key.*Configure the key that signed it"):
        start.run()


def test_on_miss_wait_takes_what_another_publishes(start: Start, second: Start, time: ManualTime) -> None:
    sleep, start_run = time.sleep, start.run

    def published_meanwhile(seconds: float) -> None:
        time.sleep = sleep  # type: ignore[method-assign]
        sleep(seconds)
        start_run(GRAPH)

    time.sleep = published_meanwhile  # type: ignore[method-assign]
    assert not second.run(GRAPH, on_miss=OnMiss.WAIT).compiled
    assert not second.compiled


def test_a_wait_ends_and_polls_with_jitter(start: Start, second: Start, objects: Objects, time: ManualTime) -> None:
    holder = Contender(objects, f"leases/graph/{GRAPH.digest}", time, "trn1.32xlarge")
    holder.poll()
    lease = holder.acquire()
    assert lease is not None
    lease.keep()
    sleep = time.sleep

    def renewed(seconds: float) -> None:
        sleep(seconds)
        time.tick()

    time.sleep = renewed  # type: ignore[method-assign]
    objects.asked.clear()
    with pytest.raises(AcquireTimedOut, match=r"600 s.*ContainerStartupHealthCheckTimeoutInSeconds"):
        second.run(GRAPH)
    assert all(5 <= slept <= 15 for slept in time.slept[:-1])
    assert len({round(slept, 3) for slept in time.slept}) > 30
    assert objects.asked.count("get leases") <= len(time.slept) + 2
    assert objects.asked.count("get manifests") <= 2
    assert [event["machine"] for event in second.told("artifact_wait")] == ["trn1.32xlarge"]


def test_a_failure_is_remembered_for_all_and_expires(start: Start, second: Start, time: ManualTime) -> None:
    start.compile = fail("NCC_E001", "line 1\nline 2")
    with pytest.raises(CompileFailed):
        start.run(GRAPH)
    with pytest.raises(
        FailedBefore, match=rf"trn1.2xlarge: NCC_E001.*delete .*failures/graph/{GRAPH.digest}"
    ) as caught:
        second.run(GRAPH)
    assert caught.value.log == "line 1\nline 2"
    assert not second.compiled
    time.seconds += SECONDS - 60
    with pytest.raises(FailedBefore):
        second.run(GRAPH)
    time.seconds += 120
    assert second.run(GRAPH).published


def test_a_failure_can_be_cleared_and_is_of_one_key_only(start: Start, second: Start) -> None:
    start.compile = fail("NCC_E001")
    with pytest.raises(CompileFailed):
        start.run(GRAPH)
    assert second.run(OTHER).published
    second.objects.delete(name_of(GRAPH))
    assert second.run(GRAPH).published


def test_a_stored_log_is_short_and_without_secrets(start: Start, objects: Objects) -> None:
    log = "\n".join(["hf_abcdefgh1234", "password=open sesame", *(f"line {number}" for number in range(100_000))])
    log += "\nAuthorization: Bearer abc.def\nkey AKIAIOSFODNN7EXAMPLE\nhttps://me:pw@host/?X-Amz-Signature=0f0f0f&a=1"
    log += "\nopen sesame\nmax_tokens=128 token_generation_buckets: [128, 256]\nlast"
    start.compile = fail("with hf_abcdefgh1234", log)
    with pytest.raises(CompileFailed):
        start.run(GRAPH)
    body, _ = objects.get(f"failures/graph/{GRAPH.digest}.json")
    assert len(body) < 10_000
    assert b"line 99999" in body
    assert b"max_tokens=128 token_generation_buckets: [128, 256]\\nlast" in body
    for secret in (b"hf_abc", b"open sesame", b"abc.def", b"AKIAIO", b"0f0f", b":pw@"):
        assert secret not in body


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupted_compile_leaves_nothing(
    start: Start, second: Start, objects: Objects, error: BaseException
) -> None:
    def interrupted(compilation: Compilation) -> None:
        raise error

    start.compile = interrupted
    with pytest.raises(type(error)):
        start.run()
    assert {info.key.split("/")[0] for info in objects.list("")} == {"leases"}
    assert second.run().published  # at once: the lease was released
    assert second.time.slept == []


def test_what_was_left_of_a_dead_compile_is_removed(start: Start) -> None:
    left = start.target.with_name("artifacts.compiled-999999999")
    left.mkdir(parents=True)
    start.run()
    assert not left.exists()


def test_one_whose_lease_was_stolen_does_not_publish(start: Start, objects: Objects, time: ManualTime) -> None:
    def stolen(compilation: Compilation) -> None:
        thief = Contender(objects, f"leases/graph/{GRAPH.digest}", time)
        thief.poll()
        time.seconds += 60
        thief.poll()
        assert thief.acquire() is not None
        time.tick()
        assert not compilation.held()

    start.compile = stolen
    acquired = start.run()
    assert (acquired.compiled, acquired.published) == (True, False)
    assert (acquired.path / "model.pt").exists()
    assert start.told("artifact_lease_lost")
    assert not list(objects.list("manifests/"))


def test_one_who_could_not_renew_in_time_while_publishing_stops(
    start: Start, objects: Objects, time: ManualTime
) -> None:
    upload = objects.upload

    def slow(key: str, path: Path) -> None:
        upload(key, path)
        time.seconds += 60

    objects.upload = slow  # type: ignore[method-assign]
    assert not start.run().published
    assert not list(objects.list("manifests/"))


def test_a_compile_that_takes_longer_than_a_start_may_wait_is_published(start: Start, time: ManualTime) -> None:
    def compile(compilation: Compilation) -> None:
        for _ in range(300):
            time.seconds += 20
            time.tick()

    start.compile = compile
    assert start.run(deadline=600).published


def test_a_lease_that_is_lost_says_what_the_store_said(start: Start, objects: Objects, time: ManualTime) -> None:
    def compile(compilation: Compilation) -> None:
        objects.broken["put", "leases"] = CredentialsRefused("leases", "ExpiredToken")
        for _ in range(3):
            time.seconds += 20
            time.tick()

    start.compile = compile
    assert not start.run().published
    assert "ExpiredToken" in str(start.told("artifact_not_published")[0]["problem"])


def test_a_compile_is_used_though_it_cannot_be_published(start: Start, objects: Objects) -> None:
    objects.broken["upload", "objects"] = StoreUnavailable("objects", "test")
    acquired = start.run()
    assert (acquired.compiled, acquired.published) == (True, False)
    assert start.told("artifact_not_published")[0]["code"] == "artifact_store_unavailable"


def test_a_store_that_may_not_be_written_is_found_out_before_the_compile(start: Start, objects: Objects) -> None:
    objects.broken["put", "leases"] = AccessDenied("s3://b/leases", "s3:PutObject")
    with pytest.raises(AccessDenied, match="s3:PutObject"):
        start.run()
    assert not start.compiled


def test_a_store_that_is_away_for_a_moment(start: Start, objects: Objects, time: ManualTime) -> None:
    objects.broken["get", "manifests"] = StoreUnavailable("s3://b", "503")
    sleep = time.sleep

    def back(seconds: float) -> None:
        sleep(seconds)
        objects.broken.clear()

    time.sleep = back  # type: ignore[method-assign]
    assert start.run().published


def test_a_store_that_stays_away(start: Start, objects: Objects) -> None:
    objects.broken["get", "manifests"] = StoreUnavailable("s3://b", "503")
    with pytest.raises(AcquireTimedOut, match="s3://b cannot be used now"):
        start.run()


def test_an_entry_without_its_objects_is_an_error_and_no_endless_wait(start: Start, second: Start) -> None:
    start.run(GRAPH)
    for info in list(start.objects.list("objects/")):
        start.objects.delete(info.key)
    with pytest.raises(EntryDamaged, match=rf"manifests/graph/{GRAPH.digest}\.json is damaged: delete it"):
        second.run(GRAPH)


def test_an_entry_whose_object_was_cut_short_is_an_error_and_no_endless_wait(start: Start, second: Start) -> None:
    start.run(GRAPH)
    (manifest,) = start.store.entries()
    name = object_name(manifest.files[0].digest)
    start.objects.put(name, start.objects.get(name)[0][:-1])
    with pytest.raises(EntryDamaged, match=rf"manifests/graph/{GRAPH.digest}\.json is damaged: delete it"):
        second.run(GRAPH)


AWAY, GONE = StoreUnavailable("s3://b", "503"), NotFound("s3://b/objects/ab")


@pytest.mark.parametrize("errors", [[AWAY], [GONE], [GONE, AWAY], [AWAY, AWAY, GONE, AWAY]])
def test_a_restore_is_tried_again_after_what_may_pass(start: Start, second: Start, errors: list[Exception]) -> None:
    start.run(GRAPH)
    second.restore_errors = list(errors)
    assert not second.run(GRAPH).compiled
    assert len(second.time.slept) == len(errors)
    assert len(second.told("artifact_restored")) == 1


@pytest.mark.parametrize("errors", [[GONE, AWAY, GONE], [DigestMismatch("s3://b/objects/ab", "a", "b")]])
def test_a_restore_that_cannot_succeed_ends_the_start(start: Start, second: Start, errors: list[Exception]) -> None:
    start.run(GRAPH)
    second.restore_errors = list(errors)
    with pytest.raises(EntryDamaged, match=rf"manifests/graph/{GRAPH.digest}\.json is damaged: delete it"):
        second.run(GRAPH)
    assert not second.told("artifact_restored")


def test_the_manifest_says_who_compiled(start: Start) -> None:
    start.compile = lambda compilation: start.time.sleep(7.0)
    start.run(GRAPH)
    (manifest,) = start.store.entries()
    assert manifest.machine["instance"] == "trn1.2xlarge"
    assert manifest.compile_seconds == 7.0


def meanwhile(objects: Objects, act: Callable[[], object]) -> None:
    """Lets something happen just before the first look at a lease: the manifests were looked for already."""
    get = objects.get

    def hooked(key: str, *, limit: int = 1 << 20) -> tuple[bytes, str]:
        if key.startswith("leases/"):
            objects.get = get  # type: ignore[method-assign]
            act()
        return get(key, limit=limit)

    objects.get = hooked  # type: ignore[method-assign]


def test_an_entry_that_appears_between_two_looks_is_not_compiled_again(start: Start, second: Start) -> None:
    meanwhile(start.objects, lambda: start.run(GRAPH))
    assert not second.run(GRAPH).compiled
    assert not second.compiled


def test_a_failure_that_appears_between_two_looks_counts(start: Start, second: Start) -> None:
    def failing() -> None:
        start.compile = fail("NCC_E001")
        with pytest.raises(CompileFailed):
            start.run(GRAPH)

    meanwhile(start.objects, failing)
    with pytest.raises(FailedBefore):
        second.run(GRAPH)
    assert not second.compiled


def test_one_who_could_not_renew_for_a_while_publishes_if_nobody_took_over(start: Start) -> None:
    start.compile = lambda compilation: start.time.sleep(300.0)  # and no renewal in all that time
    assert start.run().published
