"""One run of engine_program.py or of another program, and what came of it.

Each runs in a process that is forked from one that has imported vLLM. vLLM's platform depends on the environment of
that import, so a run with another platform than the last one's starts a new process to fork from.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
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
# What an engine imports (0.16.0). Of the variables that differ between the runs, it reads only these at import.
PRELOADED = ["vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"]
AT_IMPORT = ("PYTHONPATH", "NEURON_STAND_IN")
_imported_with: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class EngineRun:
    """`answer` as engine_program.py writes it, and all that was logged."""

    answer: dict[str, Any]
    log: str

    def request(self, batch: int, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.answer["batches"][batch][number]
        return found


def run_engine(
    site: Path,
    workdir: Path,
    environment: dict[str, str] | None = None,
    within: float = 270,
    program: Path = PROGRAM,
    preloaded: Sequence[str] = PRELOADED,
    **job: Any,
) -> EngineRun:
    """Runs the job with the stand-in installed, and switched on by `environment`.

    :param workdir: of this run; the answer, the log and the compiler's work directory go there.
    :param preloaded: the modules that are imported before the fork.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NEURON", "VLLM"))}
    own = {"BASE_COMPILE_WORK_DIR": str(workdir / "compile"), "VLLM_CACHE_ROOT": str(workdir / "vllm")}
    log, answer = workdir / "log.txt", workdir / "answer.json"
    whole = {**kept, **SMALL, **own, **installed(site), **(environment or {})}
    forks = multiprocessing.get_context("forkserver")
    process = forks.Process(target=_run_program, args=(program, whole, [json.dumps(job), str(answer)], log))
    _fork_from({name: whole[name] for name in AT_IMPORT if name in whole}, preloaded)
    process.start()
    process.join(within)
    assert process.pid is not None, "it has been started"
    with suppress(ProcessLookupError):  # its own session: with it ends an engine core that it has started
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
    text = log.read_text(errors="replace")
    assert answer.is_file(), text[-4000:]
    return EngineRun(json.loads(answer.read_text()), text)


def _fork_from(environment: dict[str, str], preloaded: Sequence[str]) -> None:
    """Starts the process that the next runs are forked from, unless the one that there is fits."""
    wanted = {"environment": environment, "preloaded": preloaded}
    if wanted != _imported_with:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # Python's own tests do so
        _imported_with.clear()
        _imported_with.update(wanted)
        multiprocessing.get_context("forkserver").set_forkserver_preload([*preloaded])
        with patch.dict(os.environ, {**SMALL, **environment}):
            forkserver.ensure_running()


def _run_program(program: Path, environment: dict[str, str], arguments: list[str], log: Path) -> None:
    """As `python engine_program.py` with this environment would."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv = [str(program), *arguments]
    runpy.run_path(str(program), run_name="__main__")
