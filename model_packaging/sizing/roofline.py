"""Predicts the seconds of a prefill and of a decode step: the roofline of one tensor-parallel rank.

A decode step reads the rank's weights and the key-value cache of every sequence, or computes, whichever takes longer. A
prefill computes, or reads the weights, whichever takes longer; its collectives move the hidden states of all tokens.
Each layer and each step has a fixed cost on top. The constants are in `chip_rates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.chip_rates import ChipRates
from handler.neuron.memory.rank_tensors import cached_tokens
from handler.neuron.memory.rank_weights import rank_weights, shard_heads

# Bytes of an element of hidden states and of the key-value cache.
WIDTH = 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """One model on one instance.

    :param degree: the tensor-parallel degree, in logical cores.
    :param cores: the logical cores of one chip.
    :param weight_width, cache_width: bytes of a parameter, and of an element of the cache.
    """

    facts: ModelFacts
    rates: ChipRates
    degree: int
    cores: int
    weight_width: float = 2.0
    cache_width: float = 2.0

    def decode(self, batch: int, context: int) -> float:
        """Seconds of one step for `batch` sequences, each of which reads `context` tokens of its cache."""
        facts, rates = self.facts, self.rates
        read, active = self._parameters(batch)
        heads = shard_heads(facts.heads, facts.kv_heads, self.degree).kv_per_rank
        cache = 2 * cached_tokens(facts, context) * heads * facts.head_dim * self.cache_width * batch
        memory = read * self.weight_width / self._memory(rates.weight_share) + cache / self._memory(rates.cache_share)
        # The collectives of one token are latency, which is in the overhead.
        return max(memory, 2 * active * batch / self._compute()) + self._overhead()

    def prefill(self, tokens: int, batch: int = 1, context: int = 0) -> float:
        """Seconds of one prefill of `tokens` tokens for each of `batch` prompts.

        :param context: tokens of the prompt in earlier segments.
        """
        facts, rates = self.facts, self.rates
        read, active = self._parameters(tokens * batch)
        # Scores and values, each a product of two matrices, of half a square (causal).
        attended = tokens * (tokens / 2 + context)
        attention = 4 * facts.layers * attended * facts.head_dim * ceil(facts.heads / self.degree)
        moved = 2 * facts.layers * tokens * batch * facts.hidden_size * WIDTH * 2 * (1 - 1 / self.degree)
        memory = read * self.weight_width / self._memory(rates.weight_share)
        compute = batch * (2 * active * tokens + attention) / self._compute()
        return max(memory, compute) + moved / rates.link + self._overhead()

    def _overhead(self) -> float:
        return self.facts.layers * self.rates.layer_seconds + self.rates.step_seconds

    def _parameters(self, tokens: int) -> tuple[float, float]:
        """Parameters of a rank that a step reads, and those that one token uses. The embedding is a look-up."""
        facts, rank = self.facts, rank_weights(self.facts, self.degree)
        fixed = rank.attention + rank.replicated + rank.embeddings / 2
        if not facts.experts:
            return fixed + rank.mlp, fixed + rank.mlp
        share = facts.experts_per_token / facts.experts
        # Tokens choose their experts independently: the share that at least one of them chose.
        return fixed + rank.mlp * (1 - (1 - share) ** tokens), fixed + rank.mlp * share

    def _memory(self, share: float) -> float:
        return self.rates.memory / self.cores * share

    def _compute(self) -> float:
        return self.rates.compute / self.cores * self.rates.compute_share
