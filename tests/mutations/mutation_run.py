"""Applies each mutation to a copy of the tree, runs its tests, and reverts it.

`python -m tests.mutations.mutation_run [WORD]`. With a word: the mutations that have it in their name.

Exit status 1: a mutation survived, so no test fails of it. Takes some minutes, and is no part of `make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations.mutation_list import MUTATIONS, ROOT, Mutation

FAILED = 1  # pytest's exit status if a test failed, and not if there was none or it could not be collected
SECONDS = 600


def copy_tree(target: Path) -> None:
    """Copies the files that git knows, and new ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def run_tests(tree: Path, tests: tuple[str, ...], expected: int = 0) -> int:
    """Pytest's exit status. Its output is printed if the status is neither 0 nor the expected one."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environ = {**os.environ, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    if run.returncode not in (0, expected):
        print(run.stdout[-2000:], run.stderr[-2000:], file=sys.stderr)
    return run.returncode


def survives(tree: Path, mutation: Mutation) -> bool:
    path = tree / mutation.file
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return run_tests(tree, mutation.tests, FAILED) != FAILED
    finally:
        path.write_text(original, encoding="utf-8")


def main(word: str) -> int:
    chosen = [mutation for mutation in MUTATIONS if word in mutation.name]
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        copy_tree(tree)
        for tests in {mutation.tests for mutation in chosen}:
            if run_tests(tree, tests) != 0:
                print(f"without a mutation, {' '.join(tests)} fails")
                return 1
        survivors = 0
        for mutation in chosen:
            alive = survives(tree, mutation)
            survivors += alive
            print(f"{'SURVIVED' if alive else 'killed'}: {mutation.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations were killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
