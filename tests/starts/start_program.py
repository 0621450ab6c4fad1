"""Runs in a process that is forked from one with vLLM: one start as `serve` makes it, and two requests.

The plan is made of the full model's configuration. Then the same start is made with a tiny model in its place
(`start_models.py`): every step of `handler.startup.start`, the line's parser and platform rules, the core's process,
the warm-up. Arguments: a JSON job, and the file for its answer.

job: {"environ": {name: value}, "model": directory or hub id, "tiny": directory, "small": {what: what stands for it},
"requests": the sampling fields of bodies that are accepted, "export": a script that exports the tiny model, or ""}
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Some versions reserve 4 GiB for each rank in the host's memory, and all ranks are on this one.
RESERVED = "swap_space"


class HarmonyEncoding:
    """In the place of gpt-oss's own vocabulary, which its library fetches from the internet."""

    def stop_tokens_for_assistant_actions(self) -> list[int]:
        return []


class Answer:
    """A sink that keeps how many tokens there were, and how the request ended."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.tokens, self.finish, self.error = 0, "", ""

    def push(self, text: str, token_ids: Any, finish_reason: str | None, stop_reason: object) -> None:
        self.tokens += len(token_ids)
        if finish_reason is not None:
            self.finish = finish_reason
            self.done.set()

    def fail(self, error: Any) -> None:
        self.error = error.message
        self.done.set()


def answered(engine: Any, **sampling: Any) -> dict[str, Any]:
    """What a request with this sampling gets, as far as the plan supports it."""
    from handler.engine.generation.generation import Generation, Sampling
    from handler.engine.warmup import prompt_length, within

    kept = within(Sampling(**{"max_tokens": 8, "ignore_eos": True, **sampling}), engine.limits)
    model = engine.adapter_names[0] if engine.adapter_names else None
    answer = Answer()
    asked = Generation(f"r-{sampling}", [7] * prompt_length(engine.limits), kept, stream=False, model=model)
    engine.loop.call(engine.request(asked, answer).begin)
    assert answer.done.wait(120), "no answer within 120 s"
    assert not answer.error, answer.error
    return {"tokens": answer.tokens, "finish": answer.finish}


def exported(job: dict[str, Any], arguments: Mapping[str, Any]) -> str:
    """The tiny model as it is exported with the plan's shape."""
    directory = Path(job["environ"]["ENDPOINT_SCRATCH"], "exported")
    shape = [str(arguments[name]) for name in ("max_num_seqs", "max_model_len", "tensor_parallel_size")]
    subprocess.run([sys.executable, "-c", job["export"], job["tiny"], str(directory), *shape], check=True)
    for file in Path(job["tiny"]).glob("tokenizer*"):
        shutil.copy(file, directory)
    return str(directory)


def started(job: dict[str, Any]) -> dict[str, Any]:
    from handler.config.loading.config_loader import load
    from handler.config.vllm_argument_table import known
    from handler.engine.event_loop import LoopThread
    from handler.startup import start as startup
    from handler.startup.admission import Admission
    from handler.startup.checked_plan import checked_plan
    from handler.startup.lifecycle import Lifecycle, ServingStatus
    from handler.startup.serving_state import ServingState
    from tests.installed_vllm import version

    def small(text: str) -> str:
        for full, tiny in job["small"].items():
            text = text.replace(full, tiny)
        return text

    os.environ.update(job["environ"])
    plan = checked_plan(load(job["environ"], model=job["model"]))
    reserves = {RESERVED: 0} if version() in known()[RESERVED].versions else {}
    plan = replace(plan, engine_args={**json.loads(small(json.dumps(dict(plan.engine_args)))), **reserves})
    environ = {name: small(value) for name, value in job["environ"].items()}
    tiny = exported(job, plan.engine_args) if job.get("export") else job["tiny"]
    plan = replace(plan, engine_args={**plan.engine_args, "model": tiny})
    config = load(environ, model=tiny)
    state = ServingState(config, LoopThread.start("serving"), Lifecycle(), Admission(1))
    with ExitStack() as patches:
        with suppress(ModuleNotFoundError):  # 0.9 and 0.11 have it elsewhere, and their lines do not serve gpt-oss
            from vllm.entrypoints.openai.parser import harmony_utils

            patches.enter_context(patch.object(harmony_utils, "get_encoding", HarmonyEncoding))
        patches.enter_context(patch.object(startup, "checked_plan", lambda config: plan))
        startup.start(state)
    status = state.lifecycle.status
    answer: dict[str, Any] = {"line": plan.line, "state": status.state.value, "reason": status.reason}
    if state.engine is not None and status.state is ServingStatus.READY:
        answer["greedy"] = answered(state.engine, temperature=0.0)
        answer["sampled"] = answered(state.engine, temperature=0.7, top_p=0.9, top_k=20)
        answer["requests"] = [answered(state.engine, **request) for request in job["requests"]]
        state.engine.stop()
    return answer


def main() -> None:
    job = json.loads(sys.argv[1])
    try:
        answer = started(job)
    except Exception as error:  # what a user would see is what is recorded
        answer = {"error": type(error).__name__, "message": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
