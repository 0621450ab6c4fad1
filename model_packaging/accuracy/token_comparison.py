"""Compares two runs of the same prompts, token by token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from model_packaging.accuracy.token_run import TokenRun


@dataclass(frozen=True, slots=True)
class TokenComparison:
    """One prompt's comparison. Tokens count up to the first difference: what follows another token differs anyway.

    :param equal: tokens before the first difference.
    :param length: the longer run's number of tokens.
    :param difference: the largest difference of the equal tokens' log probabilities; None if a run has none.
    """

    prompt: str
    equal: int
    length: int
    difference: float | None

    @property
    def share(self) -> float:
        return self.equal / self.length if self.length else 1.0


def compare(run: TokenRun, reference: TokenRun) -> TokenComparison:
    pairs = list(zip(run.token_ids, reference.token_ids, strict=False))
    equal = next((position for position, (one, other) in enumerate(pairs) if one != other), len(pairs))
    both = zip(run.logprobs[:equal], reference.logprobs[:equal], strict=False)
    differences = [abs(one - other) for one, other in both]
    length = max(len(run.token_ids), len(reference.token_ids))
    return TokenComparison(run.prompt, equal, length, max(differences) if differences else None)


def mean_share(comparisons: Iterable[TokenComparison]) -> float:
    shares = [comparison.share for comparison in comparisons]
    return sum(shares) / len(shares)
