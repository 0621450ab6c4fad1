"""Measures a small load on an endpoint through boto3: time to first token and tokens per second.

It gives orders of magnitude, as seen by the caller. `benchmarks/` compares engines side by side.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from handler.json_value import Json
from model_packaging.client import EndpointClient, InvocationFailed, text_of


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One request. Times are in seconds. `first` is None if no token was received. The endpoint counts the tokens."""

    first: float | None
    total: float
    tokens: int
    error: str = ""


def measure(
    client: EndpointClient,
    body: Mapping[str, Any],
    requests: int,
    concurrency: int,
    done: Callable[[int, float], None],
) -> tuple[list[LoadSample], float]:
    """Sends `requests` requests, `concurrency` at a time. Returns the samples and the total time in seconds.

    Each prompt begins with a different number, so that no prefix cache is used.

    :param done: called after each request with the number of requests and the tokens per second so far.
    :raises BotoCoreError: there are no credentials.
    """
    samples: list[LoadSample] = []
    lock = threading.Lock()
    began = time.monotonic()

    def one(number: int) -> None:
        sample = _one(client, _numbered(body, number))
        with lock:
            samples.append(sample)
            done(len(samples), sum(sample.tokens for sample in samples) / (time.monotonic() - began))

    with ThreadPoolExecutor(concurrency, thread_name_prefix="load") as pool:
        list(pool.map(one, range(requests)))
    return samples, time.monotonic() - began


def summary(samples: Sequence[LoadSample], seconds: float) -> dict[str, Json]:
    """Returns rates, and percentiles of the successful requests. Times are in seconds."""
    good = [(sample, sample.first) for sample in samples if not sample.error and sample.first is not None]
    between = [(sample.total - first) / (sample.tokens - 1) for sample, first in good if sample.tokens > 1]
    return {
        "requests": len(samples),
        "failed": len(samples) - len(good),
        "errors": {**Counter(sample.error for sample in samples if sample.error)},
        "seconds": round(seconds, 3),
        "requests_per_second": round(len(good) / seconds, 3) if seconds else None,
        "tokens_per_second": round(sum(sample.tokens for sample, _ in good) / seconds, 2) if seconds else None,
        "time_to_first_token": _percentiles([first for _, first in good]),
        "time_between_tokens": _percentiles(between),
        "time_in_all": _percentiles([sample.total for sample, _ in good]),
    }


def _one(client: EndpointClient, body: Mapping[str, Any]) -> LoadSample:
    from botocore.exceptions import CredentialRetrievalError, NoCredentialsError, SSOError

    began, first, chunks, counted = time.monotonic(), None, 0, 0
    try:
        for event in client.stream(body):
            if _generated(event):
                chunks += 1
                first = time.monotonic() - began if first is None else first
            usage = event.get("usage")
            counted = usage.get("completion_tokens", 0) if isinstance(usage, Mapping) else counted
    except InvocationFailed as error:
        return LoadSample(None, time.monotonic() - began, chunks, error.code or str(error)[:80])
    except (CredentialRetrievalError, NoCredentialsError, SSOError):  # nothing was sent, and nothing will be
        raise
    except Exception as error:  # what boto3 raises: a throttle, a time-out
        return LoadSample(None, time.monotonic() - began, chunks, f"{type(error).__name__}: {error}"[:300])
    return LoadSample(first, time.monotonic() - began, counted or chunks, "" if chunks else "no text")


def _generated(event: Mapping[str, Any]) -> bool:
    """Whether an event has tokens. The endpoint also counts those of the model's thinking and of a tool call."""
    deltas = [choice.get("delta") or {} for choice in event.get("choices") or ()]
    names = ("reasoning", "reasoning_content", "tool_calls")
    return bool(text_of(event)) or any(delta.get(name) for delta in deltas for name in names)


def _numbered(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    first, *rest = body["messages"]
    return {**body, "messages": [{**first, "content": f"[{number}] {first['content']}"}, *rest]}


def _percentiles(values: Sequence[float]) -> dict[str, Json] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {f"p{q}": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 4) for q in (50, 90, 99)}
