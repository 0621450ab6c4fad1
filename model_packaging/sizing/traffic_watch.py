"""Watches an endpoint's /metrics, and says when its requests no longer fit the buckets that they were tuned for."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from handler.errors import SettingError
from handler.neuron.buckets.padding import ASKED, COMPUTED, DECODE, PREFILL
from model_packaging.sizing.plan_cost import PlanCost

# The padding of a phase may exceed what was promised by this share of the computed tokens.
MARGIN: Final = 0.1
# An interval with fewer tokens tells nothing.
FEWEST: Final = 1000
SECONDS: Final = 10


def watch_traffic(url: str, proposed: PlanCost, poll: float, polls: int | None, say: Callable[[str], object]) -> bool:
    """Compares the padding of each interval with the promised one.

    :param url: the container's address. /metrics is added if it is missing.
    :param polls: intervals to watch; None: until traffic has moved.
    :return: whether traffic has moved in the last interval with enough tokens.
    :raises SettingError: the address cannot be read, or the endpoint reports no padding.
    """
    address = url if url.endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    promised = {
        tokens.phase: tokens.padding / tokens.computed
        for tokens in (proposed.prefill, proposed.decode)
        if tokens.computed
    }
    moved, done, before = False, 0, _tokens(address)
    while polls is None or done < polls:
        time.sleep(poll)
        now, done = _tokens(address), done + 1
        shares = interval_padding(before, now)
        before = now
        for phase, share in shares.items():
            say(f"{phase}: {share:.1%} padding, promised {promised.get(phase, 0.0):.1%}")
        if shares:
            moved = any(share > promised.get(phase, 0.0) + MARGIN for phase, share in shares.items())
        if moved and polls is None:
            break
    if moved:
        say("Traffic has moved away from its buckets: run `size --log` on a newer log.")
    return moved


def interval_padding(before: Mapping[tuple[str, str], float], now: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The share of padding of each phase between two readings. A phase with few tokens is left out."""
    shares = {}
    for phase in (PREFILL, DECODE):
        asked, computed = (now.get((name, phase), 0.0) - before.get((name, phase), 0.0) for name in (ASKED, COMPUTED))
        if computed >= FEWEST:
            shares[phase] = 1 - asked / computed
    return shares


def _tokens(address: str) -> dict[tuple[str, str], float]:
    """Tokens by counter and phase, over all buckets."""
    if not address.startswith(("http://", "https://")):
        raise SettingError("--watch", f"{address} is no address", "Give http://host:8080 of a container.")
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as reply:
            text = reply.read().decode("utf-8", "replace")
    except (urllib.error.URLError, OSError) as error:
        raise SettingError("--watch", f"{address} cannot be read ({error})", "Give a container's address.") from None
    counts: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in (ASKED, COMPUTED):
                key = sample.name, sample.labels.get("phase", "")
                counts[key] = counts.get(key, 0.0) + sample.value
    if not counts and ASKED.removesuffix("_total") not in text:
        raise SettingError("--watch", "the endpoint reports no padding", "Its plan has no buckets: see docs/tuning.md.")
    return counts
