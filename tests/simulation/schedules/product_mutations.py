"""Bugs that are put into a copy of the product's code, one at a time. The simulation has to find each of them.

`python -m tests.simulation.schedules.product_mutations` runs all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The packages that the simulation imports.
PACKAGES = ("handler", "container")
MOST_SCHEDULES = 3000
LEASE, STORE, TRANSFER = "handler/artifacts/lease", "handler/artifacts/store", "handler/storage/transfer"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: in the file, `old` is replaced by `new`.

    :param found: what the simulation says of it, in part.
    """

    name: str
    file: str
    old: str
    new: str
    found: str


MUTATIONS = (
    Mutation(
        "lease_is_taken_without_a_condition",
        f"{LEASE}/lease.py",
        "if_absent=self._etag is None, if_match=self._etag",
        "if_absent=False, if_match=None",
        " while ",
    ),
    Mutation(
        "lease_expires_too_early",
        f"{LEASE}/lease.py",
        "sent - self._since >= record.seconds else",
        "sent - self._since >= record.seconds / 4 else",
        " while ",
    ),
    Mutation(
        "torn_upload_counts_as_there",
        f"{STORE}/publication.py",
        "if replace or size_of(objects, name) != entry.size:",
        "if replace or size_of(objects, name) is None:",
        "do not serve",
    ),
    Mutation(
        "restore_ignores_digests",
        f"{TRANSFER}/download_pool.py",
        "if part.digest is None or digest == part.digest:",
        "if digest:",
        "wrong artifacts",
    ),
    Mutation(
        "poisoned_entry_counts_for_ever",
        f"{LEASE}/negative_entries.py",
        "left = min(failure.seconds, SECONDS) - age",
        "left = failure.seconds - age",
        "for no failure that counts",
    ),
    Mutation(
        "killed_compile_is_an_error_of_the_configuration",
        f"{LEASE}/compile_errors.py",
        'f"the compiling process was ended by {signal}", seconds=SHORT, crashed=True, fix=fix',
        'f"the compiling process was ended by {signal}", fix=fix',
        "for no failure that counts",
    ),
    Mutation(
        "crash_is_not_tried_again",
        f"{LEASE}/leased_compile.py",
        "ATTEMPTS = 2",
        "ATTEMPTS = 1",
        "gave up after one",
    ),
    Mutation(
        "no_second_look_under_the_lease",
        f"{LEASE}/acquisition.py",
        "            entries, missing = self._find()\n            if not missing:\n                return entries\n"
        "            self",
        "            _, missing = (), self._keys\n            self",
        "which was published before",
    ),
    Mutation(
        "requests_of_a_dead_engine_are_not_taken_over",
        "container/recovery/recovery.py",
        "return None if self._channel is None else self._channel.receive()",
        "return None",
        "neither a reply nor an error",
    ),
    Mutation(
        "hostile_body_is_never_refused",
        "container/recovery/recovery.py",
        "if refusal is not None and",
        "if False and",
        "runs a body that ended its engine",
    ),
)


def simulated(mutation: Mutation) -> str:
    """What the simulation says of a copy of the product with this bug. It stops at the first violation."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        for package in PACKAGES:
            shutil.copytree(ROOT / package, Path(name, package), ignore=shutil.ignore_patterns("__pycache__"))
        Path(name, "tests").symlink_to(ROOT / "tests")
        source = Path(name, mutation.file)
        text = source.read_text()
        assert text.count(mutation.old) == 1, f"{mutation.file} has {mutation.old!r} {text.count(mutation.old)} times"
        source.write_text(text.replace(mutation.old, mutation.new))
        command = (sys.executable, "-m", "tests.simulation", "--schedules", str(MOST_SCHEDULES), "--processes", "1")
        environ = {**os.environ, "PYTHONPATH": name}
        done = subprocess.run((*command, "--stop"), cwd=name, env=environ, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


def main() -> None:
    missed = []
    for mutation in MUTATIONS:
        began = time.monotonic()
        said = simulated(mutation)
        if mutation.found not in said:
            missed.append(mutation.name)
        print(f"{time.monotonic() - began:4.0f} s {mutation.name}: {said.strip()[-300:]}")
    sys.exit(f"not found: {missed}" if missed else None)


if __name__ == "__main__":
    main()
