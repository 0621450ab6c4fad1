"""A soak counts a server's descriptors without those to the processes that try grammars, and no other's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from psutil import Process

from handler.engine.grammar.trial_lane import UNREADABLE, TrialLane, TrialProcess
from tests.soak.soak_state import trial_descriptors

# The process without the grammar library. The grammar `crash` ends the child that tries it.
WITHOUT_LIBRARY = """
import os, socket
from handler.engine.grammar.trial_process import serve
control = socket.socket(fileno=0)
control.sendall(b"ready")
serve(control, lambda kind, spec: os._exit(1) if spec == "crash" else None)
"""


def counts() -> list[tuple[int, int]]:
    """How many descriptors are to trials, and how many others this process has: at the start and after each step."""
    here = Process()
    process = TrialProcess((sys.executable, "-c", WITHOUT_LIBRARY))
    quick, slow = TrialLane(process, 60), TrialLane(process, 60)
    counted = [(0, here.num_fds())]

    def count() -> None:
        of_trials = trial_descriptors(here)
        counted.append((of_trials, here.num_fds() - of_trials))

    try:
        for lane in (quick, slow):
            assert lane.result("regex", "good").problem is None
            count()
        assert slow.result("regex", "crash").problem == UNREADABLE
        count()
        with open(os.devnull):
            count()
    finally:
        process.close()
        quick.close()
    count()
    return counted


def test_each_process_and_child_that_tries_grammars_has_one_descriptor() -> None:
    """In a process of its own: other tests' threads open and close descriptors here."""
    program = f"import json; from {__name__} import counts; print(json.dumps(counts()))"
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, check=True, timeout=300)
    counted = [tuple(pair) for pair in json.loads(ran.stdout)]
    before = counted[0][1]
    assert counted == [(0, before), (2, before), (3, before), (2, before), (2, before + 1), (0, before)]
