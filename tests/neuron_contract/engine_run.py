"""One run of engine_program.py, and what came of it.

Each runs in a process that is forked from one that has imported most of what vLLM imports. vLLM itself is not among it,
because its platform depends on the run's environment.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from neuron_stand_in.installation import installed

PROGRAM = Path(__file__).with_name("engine_program.py")
SMALL = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in one process: half the imports
}
# What takes longest of vLLM's imports (0.16.0). None of it reads a variable that differs between the runs.
PRELOADED = ["torch._inductor.compile_fx", "transformers", "scipy.signal", "scipy.stats", "openai", "networkx"]


@dataclass(frozen=True, slots=True)
class EngineRun:
    """`answer` as engine_program.py writes it, and all that was logged."""

    answer: dict[str, Any]
    log: str

    def request(self, batch: int, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.answer["batches"][batch][number]
        return found


def run_engine(
    site: Path, workdir: Path, environment: dict[str, str] | None = None, within: float = 270, **job: Any
) -> EngineRun:
    """Runs the job with the stand-in installed, and switched on by `environment`.

    :param workdir: of this run; the answer, the log and the compiler's work directory go there.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NEURON", "VLLM"))}
    own = {"BASE_COMPILE_WORK_DIR": str(workdir / "compile"), "VLLM_CACHE_ROOT": str(workdir / "vllm")}
    log, answer = workdir / "log.txt", workdir / "answer.json"
    whole = {**kept, **SMALL, **own, **installed(site), **(environment or {})}
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(PRELOADED)
    process = forks.Process(target=_run_program, args=(whole, [json.dumps(job), str(answer)], log))
    with patch.dict(os.environ, SMALL):  # the first run starts the process that all are forked from
        process.start()
    process.join(within)
    process.kill()
    process.join()
    text = log.read_text(errors="replace")
    assert answer.is_file(), text[-4000:]
    return EngineRun(json.loads(answer.read_text()), text)


def _run_program(environment: dict[str, str], arguments: list[str], log: Path) -> None:
    """As `python engine_program.py` with this environment would."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv = [str(PROGRAM), *arguments]
    runpy.run_path(str(PROGRAM), run_name="__main__")
