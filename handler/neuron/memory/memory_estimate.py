"""Estimates the memory of one logical core, and of the host during loading, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.instance_catalogue import GIB, InstanceType, core_memory
from handler.neuron.lines.blocks import NATIVE_BLOCK
from handler.neuron.memory import overhead
from handler.neuron.memory.memory_shape import MemoryShape, memory_shape
from handler.neuron.memory.rank_tensors import cache_bytes, weight_bytes
from handler.neuron.memory.rank_weights import stage_facts

# Above this share of a core's memory, a small error of the estimate may make the model not fit.
TIGHT = 0.85


class Verdict(StrEnum):
    """Whether the configuration fits into the memory of a core."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


class Basis(StrEnum):
    """How a number is known: computed from shapes, measured on one real model, or only assumed."""

    COMPUTED = "computed"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory, in bytes."""

    name: str
    size: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of one logical core and of the host, in bytes.

    :param host_needed: the peak while the checkpoint is loaded. Assumed to be twice the weights of each engine (as read
        and as sharded), or once if saved shards are loaded.
    :param paged_sequences: how many sequences of the full length a paged cache holds at once; None if it is not paged.
    :param refused: why the native plugin does not start with its cache; "" if it does.
    :param notes: what the estimate does not count or had to assume.
    """

    instance: InstanceType
    shape: MemoryShape
    parts: tuple[MemoryPart, ...]
    available: int
    host_needed: int
    host_available: int
    notes: tuple[str, ...] = ()
    paged_sequences: int | None = None
    refused: str = ""

    @property
    def loads(self) -> bool:
        """Whether the host has the memory that loading is assumed to take."""
        return self.host_needed <= self.host_available

    @property
    def total(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def certain(self) -> int:
        """The total without the parts that are only assumed. Only this total may reject a configuration."""
        return sum(part.size for part in self.parts if part.basis is not Basis.ASSUMED)

    @property
    def verdict(self) -> Verdict:
        # Of a paged cache, the plugin's own rule decides: it gives the cache a share of what the weights leave.
        if self.refused or (self.certain > self.available and self.paged_sequences is None):
            return Verdict.DOES_NOT_FIT
        return Verdict.TIGHT if self.total > TIGHT * self.available else Verdict.FITS

    def document(self) -> dict[str, Json]:
        """The estimate as JSON, with sizes in GiB."""
        parts: list[Json] = [
            {"name": part.name, "gib": _gib(part.size), "basis": part.basis.value} for part in self.parts if part.size
        ]
        return {
            "verdict": self.verdict.value,
            "instance": self.instance.name,
            "tensor_parallel_size": self.shape.degree,
            "logical_nc_config": self.shape.lnc,
            "max_model_len": self.shape.length,
            "max_num_seqs": self.shape.sequences,
            "core": {
                "total_gib": _gib(self.total),
                "available_gib": _gib(self.available),
                "share": round(self.total / self.available, 3),
                "parts": parts,
            },
            "paged_sequences": self.paged_sequences,
            "host": {"needed_gib": _gib(self.host_needed), "available_gib": _gib(self.host_available)},
            "notes": list(self.notes),
        }


def estimate(
    facts: ModelFacts, config: EndpointConfig, instance: InstanceType, *, draft: ModelFacts | None = None
) -> MemoryEstimate | None:
    """Estimates the memory of a configuration; None if neither config.json nor the index tells a shape or a size.

    :param draft: the facts of the speculative model, if one is configured.
    """
    notes = []
    if config.speculative_model and draft is None:
        notes.append("the draft model is not counted: its config.json was not read")
    if config.enable_lora:
        notes.append("LoRA adapters are not counted")
    presharded = bool(config.save_sharded_checkpoint and config.compiled_artifacts)
    return measure(facts, memory_shape(config, facts, instance), instance, draft, notes, presharded=presharded)


def measure(
    facts: ModelFacts,
    shape: MemoryShape,
    instance: InstanceType,
    draft: ModelFacts | None = None,
    notes: Iterable[str] = (),
    *,
    presharded: bool = False,
) -> MemoryEstimate | None:
    """Estimates the memory of a shape: `estimate` with resolved settings. The draft is counted unquantized."""
    if not (facts.layers and facts.hidden_size) and not facts.weight_bytes:
        return None
    whole, facts = facts, stage_facts(facts, shape.stages)
    all_notes = list(notes)
    if not (facts.layers and facts.hidden_size):
        all_notes.append(
            f"config.json of {facts.model_type} has no shape: weights are split evenly, the KV cache is not counted"
        )
    elif not facts.heads:
        all_notes.append("config.json names no attention heads: the KV cache is not counted")
    weights, cache = weight_bytes(facts, shape), cache_bytes(facts, shape)
    draft_weights = weight_bytes(draft, replace(shape, quantized=False)) if draft else 0
    draft_cache = cache_bytes(draft, shape) if draft else 0
    paged, refused = None, ""
    if shape.paged is not None:
        single = replace(shape, cache_tokens=-(-shape.length // NATIVE_BLOCK) * NATIVE_BLOCK)
        sequence = cache_bytes(facts, single) + (cache_bytes(draft, single) if draft else 0)
        fixed = sequence * shape.fixed_tokens // max(single.cache_tokens, 1)
        memory, all_weights = core_memory(instance, shape.lnc), weights + draft_weights
        budget = shape.paged.budget(memory, all_weights)
        refused = _refused(shape, sequence, fixed, budget, memory - all_weights)
        capacity, draft_cache = fixed or budget, 0
        paged = min(capacity // sequence, shape.sequences) if sequence else shape.sequences
        cache = fixed or min(budget, sequence * shape.sequences)
    tensors = weights + cache + draft_weights + draft_cache
    layers = facts.layers + (draft.layers if draft else 0)
    parts = (
        MemoryPart("weights", weights, Basis.COMPUTED),
        MemoryPart("KV cache", cache, Basis.COMPUTED),
        MemoryPart("draft weights", draft_weights, Basis.COMPUTED),
        MemoryPart("draft KV cache", draft_cache, Basis.COMPUTED),
        MemoryPart("model code", overhead.model_code(layers, shape.lnc), Basis.MEASURED),
        MemoryPart("DMA rings", overhead.dma_rings(tensors), Basis.MEASURED),
        MemoryPart("scratchpad", overhead.SCRATCHPAD, Basis.MEASURED),
        MemoryPart("collectives", overhead.collectives(shape.degree), Basis.MEASURED),
        MemoryPart("activations", overhead.activations(facts, shape), Basis.ASSUMED),
        MemoryPart("further buckets", overhead.further_graphs(shape.graphs), Basis.ASSUMED),
    )
    of_rank = weight_bytes(whole, shape) + draft_weights
    host = of_rank * shape.degree * shape.engines * (1 if presharded else 2)
    return MemoryEstimate(
        instance,
        shape,
        parts,
        core_memory(instance, shape.lnc),
        host,
        instance.host_gib * GIB,
        tuple(all_notes),
        paged,
        refused,
    )


def _refused(shape: MemoryShape, sequence: int, fixed: int, budget: int, left: int) -> str:
    """Why the plugin, or vLLM over it, does not start (vllm/v1/core/kv_cache_utils.py); "" if it does.

    :param left: what the weights leave of a core's memory. vLLM allocates a fixed number of blocks whatever it is.
    """
    if shape.paged is not None and budget < shape.paged.minimum:
        least = shape.paged.minimum / GIB
        return f"the weights leave {budget / GIB:.2f} GiB for the KV cache, and the plugin wants {least:.2f} at least"
    if fixed > left:
        return f"the number of blocks takes {fixed / GIB:.2f} GiB of KV cache, and the weights leave {left / GIB:.2f}"
    if sequence > (fixed or budget):
        have = (fixed or budget) / GIB
        return (
            f"one sequence of {shape.length} tokens takes {sequence / GIB:.2f} GiB of KV cache, and it has {have:.2f}"
        )
    return ""


def _gib(size: int) -> float:
    return round(size / GIB, 2)
