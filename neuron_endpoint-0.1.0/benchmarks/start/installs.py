"""`python -m benchmarks setup`: the time of `make setup`, and of the same lock installed by pip, with empty caches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import click

from benchmarks.lib.contestant import ROOT
from benchmarks.lib.measurements import compare
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring

# In the Makefile's SET_UP: what is left out for pip alone.
UV_BEGINS, UV_ENDS = "install uv ", "\nfi\n"
# PYTHONDONTWRITEBYTECODE: with it, `make setup` compiles all modules, as pip always does.
NOT_A_NEWCOMERS = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
LEFT_OUT = (".git", ".venv*", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "env.sh")


@click.command("setup")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Set-ups of each way.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def installs(pairs: int, out: Path) -> None:
    """Measure `setup_vs_pip`: `make setup` over the same targets by pip alone. Downloads gigabytes each time."""
    report = BenchmarkReport(out, ("setup_vs_pip",))
    met: list[tuple[float, float]] = []
    with measuring(report, subprocess.CalledProcessError):
        for pair in range(pairs):
            ways = ("ours", "pip") if pair % 2 else ("pip", "ours")
            seconds = {way: _set_up(alone=way == "pip") for way in ways}
            met.append((seconds["ours"], seconds["pip"]))
            report.line({"record": "setup", "pair": pair, **seconds})
            report.say(f"pair {pair}: make setup {seconds['ours']:.0f} s, by pip alone {seconds['pip']:.0f} s")
    comparison = compare("setup_vs_pip", met, "s")
    report.finish([comparison] if comparison else [], "make setup with empty caches: ours, theirs is pip alone")


def _set_up(*, alone: bool) -> float:
    """The seconds of `make setup` in a new copy of the tree.

    :param alone: by pip alone.
    """
    with tempfile.TemporaryDirectory(prefix="bench-setup-", dir=ROOT / "build") as scratch:
        tree, caches = Path(scratch) / "tree", Path(scratch) / "caches"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        if alone:
            replace_installer(tree / "Makefile")
        environment = {
            **{name: value for name, value in os.environ.items() if name not in NOT_A_NEWCOMERS},
            "PIP_CACHE_DIR": str(caches / "pip"),
            "UV_CACHE_DIR": str(caches / "uv"),
            "PATH": os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part),
        }
        began = time.monotonic()
        subprocess.run(["make", "setup"], cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.monotonic() - began


def replace_installer(makefile: Path) -> None:
    """Has pip install everything. uv is neither installed first nor run.

    :raises ValueError: the Makefile has another installer.
    """
    text = makefile.read_text(encoding="utf-8")
    begin = text.index(UV_BEGINS)
    makefile.write_text(text[:begin] + text[text.index(UV_ENDS, begin) + len(UV_ENDS) :], encoding="utf-8")
