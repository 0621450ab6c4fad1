"""Computes how many parameters of a transformer each tensor-parallel rank holds.

NxD Inference shards as follows (neuronx-distributed-inference, modules/attention/gqa.py, models/*/modeling_*.py). Query
heads are padded to a multiple of the degree. KV heads are replicated to one for each rank if the degree is a multiple
of their number; otherwise they are expanded to the number of query heads. Projections, experts, the embedding and the
LM head are split and padded to the degree. Norms and routers are on every rank. A tied LM head is a separate copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

from handler.neuron.checkpoint.model_facts import ModelFacts, number, text_part

# Model types with a shared expert as wide as `intermediate_size` (modeling_llama4_text.py).
SHARED_EXPERT_TYPES = ("llama4", "llama4_text")


@dataclass(frozen=True, slots=True)
class Heads:
    """The number of attention heads after padding and replication, and of KV heads on one rank."""

    query: int
    kv: int
    kv_per_rank: int


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Parameters (not bytes) of one rank, of all layers together."""

    attention: int
    mlp: int
    embeddings: int
    replicated: int


def shard_heads(heads: int, kv_heads: int, degree: int) -> Heads:
    """The heads that attention is compiled with.

    >>> shard_heads(32, 8, 32)
    Heads(query=32, kv=32, kv_per_rank=1)
    """
    query = ceil(heads / degree) * degree
    if heads == kv_heads:
        kv = query
    elif kv_heads % degree == 0:
        kv = kv_heads
    elif degree % kv_heads == 0:
        kv = degree
    else:
        kv = query
    return Heads(query, kv, ceil(kv / degree))


def rank_weights(facts: ModelFacts, degree: int, attention_degrees: Iterable[int] = ()) -> RankWeights:
    """The parameters of one rank of `degree`.

    :param attention_degrees: the degrees that attention is sharded by, if they differ (with context or data
        parallelism a rank holds a copy for each).
    """
    hidden, layers = facts.hidden_size, facts.layers
    attention = sum(_attention(facts, part) for part in tuple(attention_degrees) or (degree,))
    moe_layers = _moe_layers(facts)
    dense_width = number(text_part(facts.config), "intermediate_size_mlp") or facts.intermediate_size
    mlp = (layers - moe_layers) * _gated(hidden, dense_width, degree)
    mlp += moe_layers * facts.experts * _gated(hidden, facts.expert_intermediate_size, degree)
    if facts.model_type in SHARED_EXPERT_TYPES:
        mlp += moe_layers * _gated(hidden, facts.intermediate_size, degree)
    return RankWeights(
        attention=attention * layers,
        mlp=mlp,
        embeddings=2 * facts.vocab_size * ceil(hidden / degree),
        replicated=(2 * layers + 1) * hidden + moe_layers * hidden * facts.experts,
    )


def stored_parameters(facts: ModelFacts) -> int:
    """The number of parameters of the stored language model. A tied LM head counts once."""
    whole = rank_weights(facts, 1)
    tied = facts.vocab_size * facts.hidden_size if facts.tied_embeddings else 0
    return whole.attention + whole.mlp + whole.embeddings + whole.replicated - tied


def stage_facts(facts: ModelFacts, stages: int) -> ModelFacts:
    """The part of a model that one of several pipeline stages holds. Each is counted with embedding and LM head."""
    if stages < 2:
        return facts
    part = replace(facts, layers=ceil(facts.layers / stages))
    share = stored_parameters(part) / stored_parameters(facts) if facts.layers and facts.hidden_size else 1 / stages
    return replace(
        part,
        parameters=facts.parameters and int(facts.parameters * share),
        weight_bytes=facts.weight_bytes and int(facts.weight_bytes * share),
    )


def _attention(facts: ModelFacts, degree: int) -> int:
    """Q, K, V and output projections of one layer."""
    if not facts.heads:
        return 0
    heads = shard_heads(facts.heads, facts.kv_heads, degree)
    per_rank = 2 * heads.query // degree + 2 * heads.kv_per_rank
    return facts.hidden_size * facts.head_dim * per_rank


def _gated(hidden: int, width: int, degree: int) -> int:
    """Gate, up and down projections."""
    return 3 * hidden * ceil(width / degree)


def _moe_layers(facts: ModelFacts) -> int:
    """The number of mixture-of-experts layers: every n-th one, minus the dense ones that config.json lists."""
    if not facts.experts:
        return 0
    text = text_part(facts.config)
    step = number(text, "interleave_moe_layer_step", "decoder_sparse_step") or 1
    dense = text.get("mlp_only_layers")
    return max(facts.layers // step - (len(dense) if isinstance(dense, list) else 0), 0)
