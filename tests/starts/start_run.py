"""Makes a start of `start_list` in a process that is forked from one with vLLM, and tells what came of it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.guides.fact_run import MODELS
from tests.lines.test_served_lines import EXPORT, LINES
from tests.neuron_contract.engine_run import run_engine
from tests.starts.start_list import CONFIGS, ENGINES, ROOT, Start
from tests.starts.start_models import write_tiny, write_tiny_adapter

PROGRAM = Path(__file__).with_name("start_program.py")
# What a serving process imports, and the core's process beside it.
PRELOADED = ("handler.startup.start", "handler.engine.engine_client.engine_arguments")
V1 = ("handler.engine.v1.adapter", "handler.engine.v1.serving.serving_start", "vllm.v1.worker.cpu_worker")
V0 = ("handler.engine.v0.adapter",)
WITHIN = 900.0
# What stands for a model and for a draft that a row reads from the hub.
HUB, HUB_DRAFT = "models/llama", "models/eagle"


@dataclass(frozen=True, slots=True)
class StartRun:
    """`answer` as start_program.py writes it, and all that was logged."""

    answer: dict[str, Any]
    log: str


class StartRunner:
    """Holds the directories of the models: `full/` with what `check` reads of each, and `tiny/` with tiny ones."""

    def __init__(self, directory: Path) -> None:
        self.full, self.tiny = directory / "full", directory / "tiny"
        self._directory = directory

    def run(self, start: Start) -> StartRun:
        work = self._directory / start.settings
        environ = start.in_directories(self.full, work)
        if "ENDPOINT_CONFIG" in environ:
            environ["ENDPOINT_CONFIG"] = str(ROOT / environ["ENDPOINT_CONFIG"])
        model = start.model if start.model in CONFIGS else HUB
        draft = environ.get("ENDPOINT_SPECULATIVE_MODEL", str(self.full))
        small = {f"{self.full}/": f"{self.tiny}/"}
        if not draft.startswith(str(self.full)):
            small[draft] = str(self.tiny / HUB_DRAFT)
        for name in {model, HUB_DRAFT, *_named(environ, self.full)} & CONFIGS.keys():
            self._write(name)
        for name in _named(environ, self.full) - CONFIGS.keys():
            write_tiny_adapter(self.tiny / model, self.tiny / name)
        own = {"ENDPOINT_SCRATCH": str(work / "scratch"), "SAGEMAKER_BASE_DIR": str(work)}
        served = {line.line: line for line in LINES}.get(start.line)
        job = {
            "environ": {**environ, **own},
            "model": str(self.full / model) if start.model in CONFIGS else start.model,
            "tiny": str(self.tiny / model),
            "small": small,
            "requests": [dict(request) for request in start.requests],
            "export": EXPORT if served is not None and served.exports else "",
        }
        stand_in, _ = ENGINES.get(start.line, ("", ""))
        # The CPU in the place of a device compiles nothing.
        on = {"NEURON_STAND_IN": stand_in, "TORCHDYNAMO_DISABLE": "1"} if stand_in else {}
        environment = {**on, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "NEURON_PLATFORM_TARGET_OVERRIDE": start.platform}
        if served is not None:
            environment |= {**served.double, "DOUBLE_DEVICES": "16"}  # as trn1.32xlarge has
        generation = V0 if start.line.startswith("fork-") else V1
        run = run_engine(self._directory / "site", work, environment, WITHIN, PROGRAM, (*PRELOADED, *generation), **job)
        shutil.rmtree(work / "scratch", ignore_errors=True)
        return StartRun(run.answer, run.log)

    def _write(self, name: str) -> None:
        full = self.full / name
        if full.is_dir():
            return
        full.mkdir(parents=True)
        config = dict(CONFIGS[name])
        (full / "config.json").write_text(json.dumps(config))
        _, size, tensors = MODELS.get(name.partition("/")[2], ({}, 0, ()))
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (full / "model.safetensors.index.json").write_text(json.dumps(index))
        write_tiny(config, self.tiny / name)


def _named(environ: dict[str, str], full: Path) -> set[str]:
    """The models and adapters that the environment names."""
    text = json.dumps(environ)
    return set(re.findall(rf"{re.escape(str(full))}/((?:models|adapters)/[\w.-]+)", text))
