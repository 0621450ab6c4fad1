"""What vLLM rejects on a CPU of numbers that depend on each other or on the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.cpu import CPU, SEQUENCES

# Tokens in a step for each rank, if nothing says how many (vllm/engine/arg_utils.py, 0.16 to 0.32).
TOKENS: Final = 2048
LATER: Final = ("0.29.0", "0.32.0")
BACKENDS: Final = ("mp", "uni", "ray", "external_launcher")


def heads(context: CheckContext) -> Iterator[Finding]:
    """vllm/config/model.py, verify_with_parallel_config."""
    degree, facts = context.draft.number("tensor_parallel_size") or 1, context.facts
    if context.line.name != CPU.name or facts is None or not facts.heads or facts.heads % max(degree, 1) == 0:
        return
    why = f"{degree} does not divide the model's {facts.heads} attention heads, and vLLM does not start"
    yield error("indivisible-heads", "tensor_parallel_size", why, f"Use a degree that divides {facts.heads}.")


def step(context: CheckContext) -> Iterator[Finding]:
    """vllm/config/scheduler.py, verify_max_model_len: a step holds a token of each sequence, and a whole prompt if
    prompts are not divided."""
    draft, name = context.draft, "max_num_batched_tokens"
    if context.line.name != CPU.name:
        return
    given, sequences = draft.number(name), draft.number("max_num_seqs")
    length = draft.number("max_model_len") or (context.facts.longest if context.facts else None) or 0
    whole = draft.args.get("enable_chunked_prefill") is False
    ranks = (draft.number("tensor_parallel_size") or 1) * (draft.number("pipeline_parallel_size") or 1)
    tokens = given or max(TOKENS * ranks, length if whole else 0)
    if sequences is not None and tokens < sequences:
        why = f"vLLM does not start with fewer tokens in a step ({tokens}) than max_num_seqs ({sequences})"
        fix = f"Set {name} to {sequences} or more, or lower max_num_seqs."
        yield error("tokens-below-sequences", name if given else "max_num_seqs", why, fix)
    if whole and tokens < length:
        why = f"without chunked prefill, a step of {tokens} tokens must hold a whole prompt, of up to {length}"
        yield error("tokens-below-length", name, why, f"Set it to {length}, or enable_chunked_prefill to true.")


def later_versions(context: CheckContext) -> Iterator[Finding]:
    """What vLLM 0.29 and 0.32 reject: vllm/config/vllm.py, model.py and scheduler.py."""
    if context.line.name != CPU.name or context.vllm not in LATER:
        return
    draft = context.draft
    if (draft.number("prefill_context_parallel_size") or 1) > 1:
        why = "the model runner for CPUs does not have prefill context parallelism"
        yield error("not-on-cpu", "prefill_context_parallel_size", why, "Remove it.")
    if (draft.number("max_logprobs") or 0) < -1:
        yield error("not-on-cpu", "max_logprobs", "the least is -1, for no limit", "Give -1 or more, or remove it.")
    active = draft.number("max_num_active_seqs")
    ranks = (draft.number("tensor_parallel_size") or 1) * (draft.number("pipeline_parallel_size") or 1)
    sequences = draft.number("max_num_seqs") or SEQUENCES * ranks
    if active is not None and active > sequences:
        why = f"it is above max_num_seqs ({sequences})"
        yield error("active-above-sequences", "max_num_active_seqs", why, "Lower it, or raise max_num_seqs.")


def executor(context: CheckContext) -> Iterator[Finding]:
    """vllm/v1/executor/abstract.py: another text is the name of a class in a module."""
    backend = context.draft.args.get("distributed_executor_backend")
    if context.line.name == CPU.name and isinstance(backend, str) and backend not in BACKENDS and "." not in backend:
        why = f"{shown(backend)} is no executor of vLLM, and no class (module.Class)"
        yield error("unknown-executor", "distributed_executor_backend", why, f"Use {', '.join(BACKENDS)}.")


CPU_START: Final = (heads, step, later_versions, executor)
