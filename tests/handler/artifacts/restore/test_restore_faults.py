"""500 restores through a proxy that breaks what an S3 server answers: right to the byte, or a clear error in time.

They take about a minute. RESTORE_SEEDS=50 runs the first fifty only; nothing else depends on the number.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.storage.retry import Retry
from handler.storage.storage_errors import (
    AccessDenied,
    ArtifactError,
    CredentialsRefused,
    DigestMismatch,
    StoreUnavailable,
)
from handler.storage.transfer.download_pool import GRACE
from handler.storage.transfer.s3_transfer import S3Source
from tests.fault_proxy.plan import Fault, Plan
from tests.fault_proxy.proxy import FaultProxy
from tests.handler.artifacts.restore_entry import Entry, in_bucket, make_entry, small_parts
from tests.handler.artifacts.s3_server import environment, s3_server

SEEDS = int(os.environ.get("RESTORE_SEEDS", "500"))
LIMIT = 5.0  # seconds for each restore
OPTIONS = RestoreOptions(threads=4, retry=Retry(attempts=6, base=0.002, cap=0.02, wait=0.25, stall=0.25))


class FaultyRestore:
    """The entry in a bucket, and the proxy before it."""

    def __init__(self, entry: Entry, proxy: FaultProxy) -> None:
        self.entry, self.proxy = entry, proxy
        self.source = S3Source("bucket", in_bucket)

    def restore(self, target: Path, plan: Plan) -> int:
        """Retries that it took. While it runs, nothing may be seen under the target's name."""
        seen: list[str] = []
        self.proxy.plan = plan
        self.proxy.watch = lambda path: seen.append(path) if target.exists() else None
        try:
            done = restore(
                [self.entry.manifest], self.source, target, deadline=time.monotonic() + LIMIT, options=OPTIONS
            )
        finally:
            self.proxy.watch = lambda path: None
        assert not seen, "visible while it was fetched"
        return done.retries


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyRestore]:
    root = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as patch, s3_server(root) as port:
        small_parts(patch)
        entry = make_entry(root / "bucket")
        proxy = FaultProxy(port)
        for name, value in environment(proxy.url).items():
            patch.setenv(name, value)
        yield FaultyRestore(entry, proxy)
        proxy.close()


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_seeded_faults_end_right_to_the_byte_or_in_a_clear_error(faulty: FaultyRestore, tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    met: Counter[Fault] = Counter()
    fixed = 0
    for seed in range(SEEDS):
        target, plan = tmp_path / f"{seed}" / "artifacts", Plan(seed)
        began = time.monotonic()
        failure: ArtifactError | None = None
        try:
            fixed += faulty.restore(target, plan) > 0
        except ArtifactError as error:
            failure = error
        if failure is not None:
            assert not target.exists(), seed
            assert failure.message.endswith("."), seed
            named = str(target) in failure.message or "s3://bucket/objects/" in failure.message
            assert named, (seed, failure.message)
            # What is left of it does not mislead the next start.
            faulty.restore(target, Plan(None))
        ends[type(failure).__name__ if failure else "restored"] += 1
        assert time.monotonic() - began < LIMIT + 2 * GRACE, seed
        assert faulty.entry.is_restored(target), seed
        met += plan.seen
    print(dict(ends), f"{fixed} fixed by retries", dict(met))
    if SEEDS >= 100:  # else chance may leave one out
        assert set(met) == set(Fault)
        assert fixed > SEEDS / 4
        assert {"restored", "AccessDenied", "DigestMismatch", "StoreUnavailable", "CredentialsRefused"} <= set(ends)


class Only(Plan):
    """One fault for one file, always."""

    def __init__(self, fault: Fault, digest: str = "", times: int = 1 << 30) -> None:
        super().__init__(None)
        self._fault, self._digest, self._times = fault, digest, times

    def _choose(self, name: str, number: int) -> Fault | None:
        if self._digest not in name or not self._times:
            return None
        self._times -= 1
        return self._fault


WEIGHTS = "weights/tp0_sharded_checkpoint.safetensors"


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (Fault.FORBIDDEN, AccessDenied, "allow s3:GetObject"),
        (Fault.SKEWED, CredentialsRefused, "clock is 36"),
        (Fault.SLOW_DOWN, StoreUnavailable, "503 SlowDown; the last of 6 attempts"),
        (Fault.TRUNCATED, StoreUnavailable, "the body ended after"),
    ],
)
def test_a_lasting_fault_is_named_with_the_object_and_the_fix(
    faulty: FaultyRestore, tmp_path: Path, fault: Fault, error: type[ArtifactError], says: str
) -> None:
    digest = faulty.entry.file(WEIGHTS).digest
    with pytest.raises(error) as raised:
        faulty.restore(tmp_path / "artifacts", Only(fault, digest))
    assert says in raised.value.message
    assert digest in raised.value.message
    assert not (tmp_path / "artifacts").exists()


def test_a_wrong_digest_is_fetched_once_more_and_then_refused(faulty: FaultyRestore, tmp_path: Path) -> None:
    file = faulty.entry.file("text_model/model.pt")
    plan = Only(Fault.FLIPPED, file.digest)
    with pytest.raises(DigestMismatch) as raised:
        faulty.restore(tmp_path / "artifacts", plan)
    assert plan.seen == {Fault.FLIPPED: 2}
    assert file.path in raised.value.message
    assert raised.value.expected == file.digest
    assert faulty.restore(tmp_path / "other", Only(Fault.FLIPPED, file.digest, times=1)) == 1


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.TRICKLE])
@pytest.mark.slow
def test_a_body_that_does_not_get_on_is_given_up_and_asked_for_again(
    faulty: FaultyRestore, tmp_path: Path, fault: Fault
) -> None:
    plan = Only(fault, faulty.entry.file(WEIGHTS).digest, times=1)
    before = faulty.proxy.outwaited
    assert faulty.restore(tmp_path / "artifacts", plan) == 1
    assert faulty.proxy.outwaited == before
    assert faulty.entry.is_restored(tmp_path / "artifacts")
