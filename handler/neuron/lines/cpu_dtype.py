"""Chooses the data type of the CPU line if the user does not set one."""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.host_cpu import SPACE, HostCpu
from handler.neuron.hardware.instance_catalogue import GIB
from handler.neuron.lines.cpu_cache import sequence_bytes, sequence_length
from handler.neuron.lines.plan_draft import PlanDraft

WIDTH: Final = 4  # bytes of a float32
SETTING: Final = "SM_VLLM_DTYPE"


def choose_dtype(draft: PlanDraft) -> None:
    """Chooses float32 if this machine's CPU has no arithmetic for the checkpoint's 16-bit type.

    vLLM would compute in the checkpoint's type, several times slower. Quantized checkpoints keep their type: most of
    vLLM's quantized layers reject float32.
    """
    facts, cpu = draft.facts, draft.cpu
    if facts is None or cpu is None or not cpu.lacks(facts.torch_dtype):
        return
    if draft.args.get("dtype") not in (None, "auto") or draft.args.get("quantization") or facts.quantized:
        return
    dtype = facts.torch_dtype
    setting = draft.config.setting("dtype")
    slow = f"this machine's CPU has no {dtype} arithmetic and computes {dtype} several times slower than float32"
    obstacle = _obstacle(draft, facts, cpu)
    if obstacle:
        why = f"{slow}; the plan keeps the checkpoint's {dtype}, because {obstacle}"
        fix = f"Set {SETTING}=float32 to use float32 anyway, or use a CPU with {dtype} arithmetic."
        draft.warn("dtype-slow", setting, why, fix)
        return
    draft.args["dtype"] = "float32"
    why = (
        f"{slow}; the plan sets dtype to float32. The weights take twice the checkpoint's memory, and the "
        "key-value cache holds half as many tokens"
    )
    draft.inform("dtype-float32", setting, why, f"Set {SETTING}={dtype} to keep the checkpoint's.")


def _obstacle(draft: PlanDraft, facts: ModelFacts, cpu: HostCpu) -> str:
    """The reason why a start that works in 16 bits might fail in float32; empty if there is none."""
    if not facts.weight_bytes:
        return "the size of the weights is not known"
    weights = 2 * facts.weight_bytes
    if weights > cpu.memory // 2:
        return f"the weights would take {weights / GIB:.1f} GiB of {cpu.memory / GIB:.1f} GiB of memory"
    longest = sequence_bytes(draft, facts) * WIDTH // 2
    given = draft.env.get(SPACE, "")
    cache = int(given) * GIB if given.strip().isdecimal() else cpu.free // 2
    if longest <= cache:
        return ""
    tokens = sequence_length(draft, facts)
    return f"a sequence of {tokens} tokens would take {longest / GIB:.1f} GiB of the cache's {cache / GIB:.1f} GiB"
