"""Seeded configurations, typed as users do: what `check` accepts starts, and what it refuses does not.

vLLM's own parser and configuration decide, and then the rules of the plugin. A refused configuration is judged by the
plan that it would have had; one that was not even read, by vLLM's parser. SEARCH says how many there are for each line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from neuron_stand_in.installation import installed

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.hardware.instance_catalogue import InstanceType, core_memory, logical_cores
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.memory.memory_estimate import Verdict, estimate
from handler.neuron.planning import planner
from handler.neuron.planning.vllm_versions import public
from tests.neuron_contract.typed_settings import MODELS, Typed, searched

COUNT, SEED = int(os.environ.get("SEARCH", "500")), int(os.environ.get("SEARCH_SEED", "40"))
# Line -> the versions of vLLM that its configurations can be judged by.
LINES = {
    "nxdi-0.16": ("0.16.0",),
    "native-0.24": ("0.24.0",),
    "native-0.29": ("0.29.0",),
    "cpu": ("0.16.0", "0.24.0", "0.29.0", "0.32.0"),
}
# What the software takes without a word and does not use: `check` refuses it, and a start does not.
# Two settings that differ are refused, and a start would take one of them.
SILENT = (
    "conflicting-settings",
    "kv-cache-dtype",
    "vllm-quantization",
    "unknown-neuron-key",
    "neuron-key-type",
    "unsupported-by-line",
    "several-nodes ENDPOINT_DISAGGREGATION",  # the half of an endpoint starts, and never meets the other
)
# The same on the native line: what vLLM's own worker uses, and the plugin has a worker of its own (vllm-neuron,
# platform.py, check_and_update_config); and what asynchronous scheduling leaves out: log probabilities, embeddings.
# Some of its models ignore a quantization that they do not have.
UNUSED = ("cpu_offload_gb", "calculate_kv_scales", "needs-synchronous-scheduling", "model-quantization")
# The judge of nxdi loads no weights: it has no memory, and sees none of what NxD Inference raises then.
AT_LOAD = "when the model is loaded"
AT_LOAD_CODES = (
    *("memory", "several-nodes", "prefix-caching-batch", "speculation-without-length", "kernel-dtype"),
    *("too-few-blocks", "unknown-executor"),  # on a CPU; vLLM 0.16 looks for its executor as it starts
    "not-on-nxdi",  # the loader's classes generate
)
# The real plugin switches this check of vLLM off (vllm-neuron 0.5.0, platform.py), and the judge's stand-in does not.
SWITCHED_OFF = "User-specified max_model_len"
PARAMETERS = 8_030_000_000
ROOT = Path(__file__).parents[2]


@dataclass
class Checked:
    """What `check` says of a configuration, and the plan that it has or would have had."""

    typed: Typed
    refused: list[str]
    plan: EnginePlan | None = None
    drafts: list[PlanDraft] = field(default_factory=list)


def check(typed: Typed, directory: Path, number: int) -> tuple[Checked, dict[str, Any] | None]:
    """:returns: the verdict, and the job for the judge; None if the configuration was not read."""
    environment = dict(typed.environment)
    if typed.document is not None:
        path = directory / f"{number}.yaml"
        path.write_text(json.dumps(typed.document))
        environment["ENDPOINT_CONFIG"] = str(path)
    try:
        config = load(environment)
    except SettingError as error:
        return Checked(typed, [str(error)]), None
    facts = facts_from(MODELS[typed.model], config.model, True, PARAMETERS, PARAMETERS * 2)
    instance = this_machine(config)
    drafts: list[PlanDraft] = []

    class Recorded(PlanDraft):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            drafts.append(self)

    with patch.object(planner, "PlanDraft", Recorded):
        outcome = planner.make_plan(config, facts, instance, installed=installed_versions())
    refused = [f"{finding.code} {finding.setting}: {finding.why}" for finding in outcome.errors]
    numbers = {name: drafts[0].args.get(name) for name in ("tensor_parallel_size", "max_model_len", "max_num_seqs")}
    if outcome.plan is not None and instance is not None:
        typed_numbers = {name: value for name, value in numbers.items() if isinstance(value, int)}
        memory = estimate(facts, _with(config, typed_numbers), instance)
        assert memory is not None
        if memory.verdict is Verdict.DOES_NOT_FIT:
            refused.append(f"memory: {memory.refused or memory.total}")
    cores, memory_bytes = _cores(instance, config.logical_nc_config)
    plan = drafts[0].plan()
    # vLLM's own arguments, as typed, that a refused plan leaves out.
    left_out = {name: value for name, value in typed.arguments() if name not in plan.engine_args} if refused else {}
    job = {
        "arguments": {**plan.engine_args, **left_out},
        "env": dict(plan.env),
        "model": MODELS[typed.model],
        "cores": cores,
        "memory": memory_bytes,
        "parameters": PARAMETERS,
    }
    return Checked(typed, refused, outcome.plan), job


def _cores(instance: InstanceType | None, lnc: int | None) -> tuple[int, int]:
    """How many there are, and the bytes of each; none on a CPU, and where the number is wrong."""
    if instance is None:
        return 0, 0
    try:
        return logical_cores(instance, lnc), core_memory(instance, lnc)
    except SettingError:
        return 0, 0


def _with(config: EndpointConfig, known: dict[str, Any]) -> EndpointConfig:
    from dataclasses import replace

    return replace(config, **known)


def unseen(refusal: str, plugin: str) -> bool:
    """Whether the judge cannot see why `check` refuses: the setting is taken in silence, or fails as weights load."""
    at_load = refusal.startswith(AT_LOAD_CODES) or AT_LOAD in refusal
    unused = plugin == "native" and any(name in refusal for name in UNUSED)
    seeded = refusal.startswith("seed ")  # in a worker, which no judge starts
    return seeded or unused or refusal.startswith(SILENT) or (plugin != "native" and at_load)


@pytest.mark.engine
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("line", LINES)
def test_what_is_accepted_starts_and_what_is_refused_does_not(line: str, tmp_path: Path) -> None:
    version = public(installed_versions()["vllm"])
    if version not in LINES[line]:
        pytest.skip(f"{line} is not judged by vLLM {version}")
    if line != "nxdi-0.16" and "SEARCH" not in os.environ:
        pytest.skip(
            "the judge of the native lines lacks rules of the plugin (a connector, offloading): make test-arguments"
        )
    plugin = line.partition("-")[0]
    checked = [check(typed, tmp_path, number) for number, typed in enumerate(searched(line, version, COUNT, SEED))]
    jobs = [job for _, job in checked if job is not None]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("NEURON")},
        **installed(tmp_path),
        **({} if plugin == "cpu" else {"NEURON_STAND_IN": f"{plugin}-configuration"}),
        "VLLM_LOGGING_LEVEL": "CRITICAL",
    }
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    command = [sys.executable, str(Path(__file__).with_name("configuration_judge.py"))]
    arguments = [str(tmp_path / "jobs.json"), str(tmp_path / "answers.json")]
    with (tmp_path / "log").open("w") as log:
        subprocess.run([*command, *arguments], env=environment, check=True, stdout=log, stderr=log, timeout=3500)
    answers = iter(json.loads((tmp_path / "answers.json").read_text()))
    cells: dict[tuple[bool, bool], list[Any]] = {}
    unread = silent = 0
    for verdict, job in checked:
        if job is None:
            unread += 1
            continue
        error = next(answers)
        if plugin == "nxdi" and str(error).startswith(SWITCHED_OFF) and not verdict.refused:
            error = None
        if error is None and verdict.refused and all(unseen(refusal, plugin) for refusal in verdict.refused):
            error = "silent"
            silent += 1
        said = (verdict.typed, verdict.refused, error)
        cells.setdefault((not verdict.refused, error is None), []).append(said)
    counts = {cell: len(found) for cell, found in cells.items()}
    print(f"{line}: {COUNT} of seed {SEED}; not read: {unread}; silent: {silent}; (accepted, starts): {counts}")
    wrong = cells.get((True, False), []) + cells.get((False, True), [])
    assert not wrong, "\n".join(map(str, wrong))
