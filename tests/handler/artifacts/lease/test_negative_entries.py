"""Which recorded failures count, for whom and for how long; and how often a compiler that crashes is tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import Acquisition, AcquisitionOptions
from handler.artifacts.lease.compile_errors import SHORT, CompileFailed, CompileKilled, FailedBefore
from handler.artifacts.lease.negative_entries import SECONDS, NegativeEntries, name_of
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest_signature import SecretSigner
from handler.storage.directory_objects import DirectoryObjects
from tests.handler.artifacts.acquire_program import Acquired, Compilation, acquire
from tests.handler.artifacts.artifact_files import write_artifacts
from tests.handler.artifacts.manual_time import ManualTime

KEY = ArtifactKey("graph", "a" * 64, {"engine_args": {"max_model_len": 8192}})
SIGNER = SecretSigner(b"a secret of sixteen bytes")
CRASH = CompileFailed("exit status 70", crashed=True)
KILLED = CompileKilled("SIGKILL")


class SharedStore:
    """A store that several instances share, and their clock."""

    def __init__(self, root: Path, signer: SecretSigner | None = None) -> None:
        self.objects, self.time, self.signer = DirectoryObjects(root / "store"), ManualTime(), signer
        self.entries = NegativeEntries(self.objects, self.time, signer=signer)
        self.root = root
        self.compiles = 0

    def start(self, boot: str, *outcomes: CompileFailed | None, host: str = "model.aws.local") -> Acquired:
        """One instance's start. `outcomes`: what its compiles come to. The default is SageMaker's name of each host."""
        left = list(outcomes)

        def compile(compilation: Compilation) -> None:
            self.compiles += 1
            assert list(compilation.directory.iterdir()) == [], "a crash leaves nothing to the next try"
            write_artifacts(compilation.directory)
            if (outcome := left.pop(0)) is not None:
                raise outcome

        store = ArtifactStore(self.objects, self.signer)
        options = AcquisitionOptions(machine={"host": host}, boot=boot)
        search = Acquisition(store, (KEY,), self.time.now() + 600, options, clock=self.time, random=Random(0))
        source = source_of(store)
        return acquire(
            search, lambda entries, target: restore(entries, source, target), compile, self.root / boot / host
        )

    def change(self, **values: Any) -> None:
        """As somebody who may write to the store, but has no key."""
        body, _ = self.objects.get(name_of(KEY))
        self.objects.put(name_of(KEY), msgspec.json.encode({**msgspec.json.decode(body), **values}))

    def require_none(self) -> None:
        self.entries.require_none(KEY)


@pytest.fixture
def shared(tmp_path: Path) -> SharedStore:
    return SharedStore(tmp_path)


@pytest.fixture
def signed(tmp_path: Path) -> SharedStore:
    return SharedStore(tmp_path, SIGNER)


def test_a_crash_is_tried_once_more_on_the_same_instance(shared: SharedStore) -> None:
    assert shared.start("one", CRASH, None).published
    assert shared.compiles == 2


def test_a_compiler_that_crashes_again_leaves_the_key_to_another_instance(shared: SharedStore) -> None:
    with pytest.raises(CompileFailed):
        shared.start("one", CRASH, CRASH)
    with pytest.raises(FailedBefore, match="70"):
        shared.start("one")
    assert shared.start("two", None).published
    assert not shared.start("one").compiled


def test_containers_on_one_host_are_one_instance(shared: SharedStore) -> None:
    with pytest.raises(CompileFailed):
        shared.start("one", CRASH, CRASH, host="container-1")
    with pytest.raises(FailedBefore, match="on container-1"):
        shared.start("one", host="container-2")
    shared.time.seconds += SHORT + 1
    with pytest.raises(CompileFailed):
        shared.start("one", CRASH, CRASH, host="container-3")
    assert shared.start("two", None).published


def test_an_instance_on_which_it_crashed_tries_again_after_minutes(shared: SharedStore) -> None:
    with pytest.raises(CompileFailed):
        shared.start("one", CRASH, CRASH)
    shared.time.seconds += SHORT + 1
    assert shared.start("one", None).published


def test_after_crashes_on_two_instances_nobody_tries_for_an_hour(shared: SharedStore) -> None:
    for machine in ("one", "two"):
        with pytest.raises(CompileFailed):
            shared.start(machine, CRASH, CRASH)
        shared.time.seconds += SHORT + 1  # a compile takes longer than the first record counts
    with pytest.raises(FailedBefore):
        shared.start("three")
    shared.time.seconds += SECONDS
    assert shared.start("three", None).published


def test_kills_on_two_instances_are_remembered_for_minutes_only(shared: SharedStore) -> None:
    for machine in ("one", "two"):
        with pytest.raises(CompileKilled):
            shared.start(machine, KILLED, KILLED)
    with pytest.raises(FailedBefore):
        shared.start("three")
    shared.time.seconds += SHORT + 1
    assert shared.start("three", KILLED, None).published


def test_a_failure_holds_for_the_settings_it_happened_with(shared: SharedStore) -> None:
    """One that is not part of the key may have been the cause, and changing it is what the error asks for."""
    failed = NegativeEntries(shared.objects, shared.time, settings="gpu_memory_utilization 0.55")
    changed = NegativeEntries(shared.objects, shared.time, settings="gpu_memory_utilization 0.9")
    failed.write(KEY, CompileFailed("No available memory for the cache blocks"))
    with pytest.raises(FailedBefore):
        failed.require_none(KEY)
    changed.require_none(KEY)


def test_a_crash_counts_whatever_the_settings_are(shared: SharedStore) -> None:
    NegativeEntries(shared.objects, shared.time, settings="some").write(KEY, CRASH)
    with pytest.raises(FailedBefore):
        NegativeEntries(shared.objects, shared.time, settings="others").require_none(KEY)


def test_no_entry_counts_for_longer_than_the_limit_whatever_it_says(shared: SharedStore) -> None:
    shared.entries.write(KEY, CompileFailed("NCC_EBVF030"))
    shared.change(seconds=1e12, failed=1e12)
    with pytest.raises(FailedBefore):
        shared.require_none()
    shared.time.seconds += SECONDS + 1
    shared.require_none()


def test_an_entry_that_is_too_large_or_from_the_future_counts_as_none(shared: SharedStore) -> None:
    shared.entries.write(KEY, CompileFailed("NCC_EBVF030"))
    shared.time.seconds -= 1e6
    shared.require_none()
    shared.objects.put(name_of(KEY), b"[" * 1_000_000)
    shared.require_none()


FORGERIES: list[Callable[[SharedStore], None]] = [
    lambda shared: shared.change(signature=None),
    lambda shared: shared.change(seconds=3000.0),
    lambda shared: NegativeEntries(shared.objects, shared.time).write(KEY, CompileFailed("unsigned")),
    lambda shared: NegativeEntries(
        shared.objects, shared.time, signer=SecretSigner(b"another secret of many bytes")
    ).write(KEY, CompileFailed("another key")),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_in_a_signed_store_only_signed_entries_count(signed: SharedStore, forge: Callable[[SharedStore], None]) -> None:
    signed.entries.write(KEY, CompileFailed("NCC_EBVF030"))
    with pytest.raises(FailedBefore):
        signed.require_none()
    forge(signed)
    signed.require_none()


def test_an_old_signed_entry_that_is_written_again_stays_old(signed: SharedStore) -> None:
    signed.time.seconds -= SECONDS + 1
    signed.entries.write(KEY, CompileFailed("NCC_EBVF030"))
    signed.time.seconds += SECONDS + 1
    body, _ = signed.objects.get(name_of(KEY))
    signed.objects.put(name_of(KEY), body)
    signed.require_none()
