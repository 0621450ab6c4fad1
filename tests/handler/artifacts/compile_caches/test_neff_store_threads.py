"""A process that has read no module before may read many at once, in a thread each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
# A later run finds the types inspected: each trial is a process of its own. Without ready decoders, four of five die.
TRIALS = 8
PROGRAM = """
import sys
import threading

from handler.artifacts.compile_caches import neff_store
from handler.artifacts.lease import lease, negative_entries
from handler.artifacts.store import gc_marks, manifest

sys.setswitchinterval(1e-6)
decoders = [
    value
    for module in (neff_store, lease, negative_entries, gc_marks, manifest)
    for value in vars(module).values()
    if type(value).__name__ == "Decoder"
]
barrier = threading.Barrier(16)
body = b'{"neff_schema":1,"compiler":"a","module":"b","files":[{"name":"a","size":1,"digest":"%s"}]}' % (b"0" * 64)


def read():
    barrier.wait()
    neff_store._MODULES.decode(body)
    for decoder in decoders:
        try:
            decoder.decode(b"{}")
        except Exception:
            continue


threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(decoders))
"""


@pytest.mark.parametrize("trial", range(TRIALS))
def test_many_threads_may_be_the_first_to_read(trial: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
