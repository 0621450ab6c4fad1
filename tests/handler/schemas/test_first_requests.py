"""The first requests of a process come at once: their types are new to msgspec, which takes them one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RACE = """
import sys, threading
import msgspec
from handler.schemas.openai.sampling_fields import convert

sys.setswitchinterval(1e-6)
for round in range(150):
    inner = msgspec.defstruct(f"Inner{round}", [(f"i{n}", int | None, None) for n in range(20)])
    kind = msgspec.defstruct(f"Kind{round}", [(f"f{n}", inner | None, None) for n in range(20)])
    start = threading.Barrier(4)

    def first():
        start.wait()
        convert({"f1": {"i1": 1}}, kind)

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_types_that_threads_meet_at_once_end_no_process() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", RACE],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
