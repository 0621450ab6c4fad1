"""Findings about memory: the verdict with its numbers, and the smallest change that makes the model fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from handler.config.finding import Finding, Severity
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.instance_catalogue import GIB, INSTANCES, default_degree, degrees, logical_cores
from handler.neuron.memory.memory_estimate import MemoryEstimate, Verdict, measure
from handler.neuron.memory.memory_shape import CAP_VARIABLE
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.model_rules import mixtral_width

BLOCKS: Final = "num_gpu_blocks_override"
SEVERITIES = {
    Verdict.FITS: ("memory-estimate", Severity.INFO),
    Verdict.TIGHT: ("memory-tight", Severity.WARNING),
    Verdict.DOES_NOT_FIT: ("memory-does-not-fit", Severity.ERROR),
}


def memory_findings(
    estimate: MemoryEstimate,
    facts: ModelFacts,
    draft: ModelFacts | None = None,
    named: Callable[[str], str] = str,
) -> tuple[Finding, ...]:
    """A finding about device memory, and one about host memory if loading may need more than there is.

    :param named: the name by which the user set a field.
    """
    code, severity = SEVERITIES[estimate.verdict]
    parts = ", ".join(f"{part.name} {part.size / GIB:.1f}" for part in estimate.parts if part.size >= GIB // 20)
    shape = estimate.shape
    sequences = f"{shape.sequences} sequences"
    if estimate.paged_sequences is not None:
        sequences = "weights and a paged KV cache for sequences"
    why = (
        f"each logical core of {estimate.instance.name} has {estimate.available / GIB:.0f} GiB; with a tensor parallel "
        f"degree of {shape.degree}, {sequences} of {shape.length} tokens take about "
        f"{estimate.total / GIB:.1f} GiB ({estimate.total / estimate.available:.0%}): {parts}"
    )
    notes = "".join(f"; {note}" for note in (estimate.refused, *estimate.notes) if note)
    blocks, fits = named(BLOCKS), estimate.verdict is Verdict.FITS
    fix = "Nothing to do." if fits else _fix(estimate, facts, draft, blocks)
    setting = blocks if shape.fixed_tokens and not fits else named("tensor_parallel_size")
    findings = [Finding(code, severity, setting, why + notes, fix)]
    if not estimate.refused and (estimate.paged_sequences or shape.sequences) < shape.sequences:
        findings.append(_capped_finding(estimate))
    if not estimate.loads:
        findings.append(host_finding(estimate))
    return tuple(findings)


def _capped_finding(estimate: MemoryEstimate) -> Finding:
    shape = estimate.shape
    why = (
        f"the KV cache holds {estimate.paged_sequences} sequences of {shape.length} tokens at once, or more of shorter "
        f"ones, and max_num_seqs is {shape.sequences}: a request that finds no room waits until others have ended"
    )
    fix = "Nothing to do for shorter sequences. Otherwise raise tensor_parallel_size, or lower max_model_len."
    return Finding("capped-concurrency", Severity.INFO, "max_num_seqs", why, fix)


def host_finding(estimate: MemoryEstimate) -> Finding:
    """The warning about a host that may not have the memory to load the weights."""
    engines = f" for each of {estimate.shape.engines} engines" if estimate.shape.engines > 1 else ""
    why = (
        f"{estimate.instance.name} has {estimate.host_available / GIB:.0f} GiB of host memory, but loading and "
        f"sharding the weights is assumed to take twice their size{engines}, {estimate.host_needed / GIB:.0f} GiB"
    )
    if estimate.shape.paged is not None:  # the plugin keeps no shards
        setting, fix = "instance", "Use one with more host memory, or fewer engines."
    else:
        setting = "save_sharded_checkpoint"
        fix = f"Compile on a larger instance with {setting}, and set compiled_artifacts to the result."
    return Finding("host-memory", Severity.WARNING, setting, why, fix)


def _fix(estimate: MemoryEstimate, facts: ModelFacts, draft: ModelFacts | None, blocks: str) -> str:
    if estimate.shape.fixed_tokens:
        return _without_blocks(estimate, facts, draft, blocks)
    for change, changed in _changes(estimate, facts):
        after = measure(facts, changed.shape, changed.instance, draft)
        if after is not None and after.verdict is Verdict.FITS:
            return f"{change}: that takes about {after.total / GIB:.1f} of {after.available / GIB:.0f} GiB."
    if estimate.paged_sequences is not None:
        return f"Use more cores or a shorter max_model_len, or change gpu_memory_utilization or {CAP_VARIABLE}."
    return "Use a smaller or a quantized model: no other degree, length or hosted instance that was tried holds it."


def _without_blocks(estimate: MemoryEstimate, facts: ModelFacts, draft: ModelFacts | None, blocks: str) -> str:
    """Without the number of blocks, the sequences decide the cache."""
    shape = estimate.shape
    sized = replace(estimate, shape=replace(shape, fixed_tokens=0, cache_tokens=shape.length * shape.sequences))
    after = measure(facts, sized.shape, sized.instance, draft)
    if after is not None and after.verdict is Verdict.FITS:
        return f"Remove {blocks}: that takes about {after.total / GIB:.1f} of {after.available / GIB:.0f} GiB."
    return f"Remove {blocks}. {_fix(sized, facts, draft, blocks)}"


def _changes(estimate: MemoryEstimate, facts: ModelFacts) -> Iterator[tuple[str, MemoryEstimate]]:
    """Changes, from the smallest to the largest loss, each with an estimate that has the changed shape."""
    shape = estimate.shape
    for degree in degrees(estimate.instance, shape.lnc):
        if degree > shape.degree and _is_possible(estimate, facts, degree):
            yield f"Set tensor_parallel_size to {degree}", _with_degree(estimate, degree)
    # Prefix caching with one sequence gives wrong output, so `check` refuses it.
    sequences, least = shape.sequences, 2 if shape.blocks and shape.paged is None else 1
    while sequences // 2 >= least:
        sequences //= 2
        tokens = shape.cache_tokens * sequences // shape.sequences
        changed = replace(shape, sequences=sequences, cache_tokens=tokens)
        yield f"Lower max_num_seqs to {sequences}", replace(estimate, shape=changed)
    length = shape.length
    while length > 2048:
        length //= 2
        context, tokens = min(shape.context, length), length * least
        changed = replace(shape, length=length, context=context, cache_tokens=tokens, sequences=least)
        yield f"Lower max_model_len to {length} and max_num_seqs to {least}", replace(estimate, shape=changed)
    for instance in sorted(INSTANCES, key=lambda other: other.hbm_gib):
        runs = not shape.platforms or instance.platform in shape.platforms
        if instance.hosting and runs and instance.hbm_gib > estimate.instance.hbm_gib:
            moved = replace(estimate, instance=instance, shape=replace(shape, lnc=instance.lnc[0]))
            lowest = default_degree(instance, facts.heads, facts.weight_bytes)
            for degree in degrees(instance):
                if degree >= lowest and _is_possible(moved, facts, degree):
                    yield f"Use ml.{instance.name} with tensor_parallel_size {degree}", _with_degree(moved, degree)


def _is_possible(estimate: MemoryEstimate, facts: ModelFacts, degree: int) -> bool:
    """Whether the model and the instance can have the degree: `check` rejects others."""
    shape = estimate.shape
    if degree * shape.engines * shape.stages > logical_cores(estimate.instance, shape.lnc):
        return False
    if shape.paged is not None:
        return facts.heads % degree == 0
    return mixtral_width(ConfigValues({"tp_degree": degree}, facts.config)) is None


def _with_degree(estimate: MemoryEstimate, degree: int) -> MemoryEstimate:
    return replace(estimate, shape=replace(estimate.shape, degree=degree, attention_degrees=(degree,), attention_dp=1))
