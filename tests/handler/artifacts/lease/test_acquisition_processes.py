"""Real processes that start together and find nothing compiled, over moto's S3 server and over a directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from handler.storage.object_store import ObjectStore

ROOT = Path(__file__).parents[4]


class Start:
    """One process, and what it has said."""

    def __init__(self, uri: str, directory: Path, gate: Path) -> None:
        program = "tests.handler.artifacts.acquire_program"
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, uri, str(directory), str(gate)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self._output: IO[bytes] = self.process.stdout

    def until(self, *events: str) -> dict[str, Any]:
        """Reads on until it has said one of these."""
        for line in self._output:
            event: dict[str, Any] = json.loads(line)
            if event["event"] in events:
                return event
        raise AssertionError(f"it ended with status {self.process.wait()} before any of {events}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()


@pytest.fixture
def starts(objects: ObjectStore, tmp_path: Path) -> Any:
    begun = [Start(objects.uri, tmp_path / str(number), tmp_path / "gate") for number in range(3)]
    yield begun
    for start in begun:
        start.end()


def files(directory: str) -> dict[str, bytes]:
    root = Path(directory)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_one_compiles_and_two_restore(starts: list[Start], tmp_path: Path) -> None:
    first = [start.until("artifact_compile", "artifact_wait") for start in starts]
    assert sorted(event["event"] for event in first) == ["artifact_compile", "artifact_wait", "artifact_wait"]
    (tmp_path / "gate").touch()
    done = [start.until("done") for start in starts]
    assert [event["compiled"] for event in done].count(True) == 1
    assert all(event["published"] for event in done)
    contents = [files(event["path"]) for event in done]
    assert contents[0] == contents[1] == contents[2]
    assert "weights/tp1_sharded_checkpoint.safetensors" in contents[0]


@pytest.mark.slow
def test_when_the_compiling_one_is_killed_another_takes_over(
    starts: list[Start], objects: ObjectStore, tmp_path: Path
) -> None:
    first = [start.until("artifact_compile", "artifact_wait")["event"] for start in starts]
    victim = starts.pop(first.index("artifact_compile"))
    victim.end()
    assert not list(objects.list("manifests/"))
    (tmp_path / "gate").touch()
    done = [start.until("done") for start in starts]
    assert sorted(event["compiled"] for event in done) == [False, True]
    assert files(done[0]["path"]) == files(done[1]["path"])
