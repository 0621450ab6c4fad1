"""One run of engine_program.py, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_stand_in.installation import installed

PROGRAM = Path(__file__).with_name("engine_program.py")
SMALL = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in one process: half the imports
}


@dataclass(frozen=True, slots=True)
class EngineRun:
    """`answer` as engine_program.py writes it, and all that was logged."""

    answer: dict[str, Any]
    log: str

    def request(self, batch: int, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.answer["batches"][batch][number]
        return found


def run_engine(
    site: Path, workdir: Path, environment: dict[str, str] | None = None, within: float = 120, **job: Any
) -> EngineRun:
    """Runs the job with the stand-in installed, and switched on by `environment`.

    :param workdir: of this run; the answer, the log and the compiler's work directory go there.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NEURON", "VLLM"))}
    own = {"BASE_COMPILE_WORK_DIR": str(workdir / "compile"), "VLLM_CACHE_ROOT": str(workdir / "vllm")}
    log = workdir / "log.txt"
    with log.open("wb") as file:
        subprocess.run(
            [sys.executable, PROGRAM, json.dumps(job), workdir / "answer.json"],
            env={**kept, **SMALL, **own, **installed(site), **(environment or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=within,
            check=False,
        )
    text = log.read_text(errors="replace")
    assert (workdir / "answer.json").is_file(), text[-4000:]
    return EngineRun(json.loads((workdir / "answer.json").read_text()), text)
