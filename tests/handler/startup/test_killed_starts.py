"""SIGKILL at any moment of a start whose steps run side by side: the next start is right, and fetches nothing twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.handler.artifacts.restore_entry import make_entry, small_parts
from tests.handler.forks import processes_with
from tests.handler.startup.killed_start import PART, start

KILLS = int(os.environ.get("START_KILLS", "20"))
SIZES = {"config.json": 300, "a.safetensors": 5 * PART + 1, "b/c.safetensors": 3 * PART, "d.safetensors": 17, "e": 0}
MODEL = {path: Random(path).randbytes(size) for path, size in SIZES.items()}


@pytest.fixture
def processes() -> Iterator[ForkServerContext]:
    with processes_with("tests.handler.startup.killed_start") as context:
        yield context


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_start_killed_anywhere_is_gone_on_with(
    s3: Any, bucket: str, processes: ForkServerContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    entry = make_entry(tmp_path / "store")
    for path, content in MODEL.items():
        s3.put_object(Bucket=bucket, Key=f"m/{path}", Body=content)
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}

    def run(scratch: Path, begin: str, last: int, results: Any = None) -> int | None:
        told = None if results is None else results.put
        uri, counted = f"s3://{bucket}/m", f"{scratch}/{begin}"
        process = processes.Process(target=start, args=(environment, uri, entry, scratch, counted, last, told))
        process.start()
        process.join(60)
        return process.exitcode

    def finished(scratch: Path, begin: str = "") -> tuple[int, int]:
        results = processes.SimpleQueue()
        assert run(scratch, begin, -1, results) == 0
        found: tuple[int, int] = results.get()
        assert files(scratch / "model") == MODEL
        assert entry.is_restored(scratch / "artifacts")
        return found

    random = Random(23)
    # Every other start is killed at something that the fetch does.
    events = {begin: finished(tmp_path / f"counted{begin}", begin)[1] for begin in ("", ".model-")}
    resumed = 0
    for number in range(KILLS):
        scratch, begin = tmp_path / str(number), ("", ".model-")[number % 2]
        assert run(scratch, begin, random.randint(1, events[begin])) in {-signal.SIGKILL, 0}
        whole = next((path for path in scratch.glob(".model-*") if not path.suffix), None)
        left = files(scratch / "model") if (scratch / "model").exists() else files(whole) if whole else {}
        assert left.items() <= MODEL.items(), "a half file under its name"
        kept, _ = finished(scratch)
        if left != MODEL:
            assert kept == sum(map(len, left.values())), "a whole file was fetched again"
            resumed += kept > 0
    assert resumed, "what was there is not used"
