"""Runs of prompts that are generated greedily, kept as JSON, and their comparison token by token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_packaging.client import EndpointClient, InvocationFailed


@dataclass(frozen=True, slots=True)
class TokenRun:
    """The generated tokens of one prompt.

    :param logprobs: the log probability of each token; empty if they were not asked for.
    """

    prompt: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """Runs to compare with, each of at most `max_tokens` tokens."""

    max_tokens: int
    runs: tuple[TokenRun, ...]


def run_tokens(
    client: EndpointClient, prompts: Iterable[str], max_tokens: int, *, logprobs: bool
) -> Iterator[TokenRun]:
    """Asks for each prompt's completion at temperature 0.

    :param logprobs: ask for log probabilities too. An endpoint that samples on the device rejects them with a 400.
    :raises InvocationFailed: the endpoint answered with an error, or without token ids.
    """
    unusable = "The reply has no token ids, although the request asked for them (return_token_ids)."
    for prompt in prompts:
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "return_token_ids": True}
        reply = client.invoke({**body, "logprobs": 1} if logprobs else body)
        try:
            choice = reply["choices"][0]
            values = (choice.get("logprobs") or {}).get("token_logprobs") or ()
            run = msgspec.convert({"prompt": prompt, "token_ids": choice["token_ids"], "logprobs": values}, TokenRun)
        except (LookupError, TypeError, AttributeError, msgspec.ValidationError):
            raise InvocationFailed({"message": unusable, "type": "server_error", "code": "no_token_ids"}) from None
        yield run


def write_reference(path: Path, reference: Reference) -> None:
    path.write_text(json.dumps(asdict(reference), indent=1), encoding="utf-8")


def read_reference(path: Path) -> Reference:
    """What `write_reference` wrote.

    :raises ValueError: the file holds something else.
    """
    try:
        reference = msgspec.json.decode(path.read_bytes(), type=Reference)
        if not reference.runs:
            raise ValueError("it has no runs")
        return reference
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not a reference that --save wrote ({type(error).__name__}: {error})") from None


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
    equal = next((position for position, (left, other) in enumerate(pairs) if left != other), len(pairs))
    both = zip(run.logprobs[:equal], reference.logprobs[:equal], strict=False)
    differences = [abs(left - other) for left, other in both]
    length = max(len(run.token_ids), len(reference.token_ids))
    return TokenComparison(run.prompt, equal, length, max(differences) if differences else None)


def mean_share(comparisons: Iterable[TokenComparison]) -> float:
    shares = [comparison.share for comparison in comparisons]
    return sum(shares) / len(shares)
