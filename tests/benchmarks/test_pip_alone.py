"""The set-up that `python -m benchmarks setup` compares with is that of the Makefile, by pip alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.lib.contestant import ROOT
from benchmarks.start.installs import replace_installer

# Stands for a venv's programs: writes how it was called.
PROGRAM = '#!/bin/bash\nprintf "%s %s\\n" "${0##*/}" "$*" >>called\n'


def called(tree: Path) -> list[str]:
    """What `make setup` runs, without the numbers of pipes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    subprocess.run(["make", "setup"], cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (tree / "called").read_text().splitlines()


def test_pip_installs_all_that_uv_would(tmp_path: Path) -> None:
    trees = tmp_path / "ours", tmp_path / "alone"
    for tree in trees:
        (tree / ".venv" / "bin").mkdir(parents=True)
        for name in ("pyproject.toml", "requirements"):
            (tree / name).symlink_to(ROOT / name)
        shutil.copy(ROOT / "Makefile", tree)
        for name in ("python", "uv"):
            program = tree / ".venv" / "bin" / name
            program.write_text(PROGRAM)
            program.chmod(0o755)
    replace_installer(trees[1] / "Makefile")
    ours, alone = ([line for line in called(tree) if " install " in line] for tree in trees)
    assert {line.split()[0] for line in alone} == {"python"}
    installed = [line.split(" requirements/lock.txt ")[1] for line in ours if line.startswith("uv pip install")]
    assert [line.split("--constraint ")[1].split(" ", 1)[1] for line in alone] == installed
    assert len(installed) == 2
