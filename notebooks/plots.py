"""The notebooks' pictures. Each takes what a command or the client returned, and draws it; none measures anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure

# A stage's line in the container's log: `[  11.1 s] import vLLM: 9.5 s`, its end and its length in seconds.
STAGE = re.compile(r"\[ *([\d.]+) s\] (.+): ([\d.]+) s$")


def memory(checks: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One logical core's memory in GiB, a bar for each `check --json`, and what the core has."""
    figure, axes = pyplot.subplots(figsize=(8, 2.6), layout="constrained")
    names = [part["name"] for part in next(iter(checks.values()))["memory"]["core"]["parts"]]
    left = [0.0] * len(checks)
    for name in names:
        gib = [
            sum(part["gib"] for part in check["memory"]["core"]["parts"] if part["name"] == name)
            for check in checks.values()
        ]
        axes.barh(list(checks), gib, left=left, label=name)
        left = [before + more for before, more in zip(left, gib, strict=True)]
    available = next(iter(checks.values()))["memory"]["core"]["available_gib"]
    axes.axvline(available, color="black", linestyle="--", label="the core has")
    axes.set(xlabel="GiB of a logical core")
    axes.legend(fontsize=7, ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    return _finished(figure)


def arrivals(streams: Mapping[str, Sequence[float]]) -> Figure:
    """When each piece of text came: seconds since its request was sent."""
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.4 * len(streams)), layout="constrained")
    axes.eventplot(list(streams.values()), linelengths=0.6)
    axes.set(yticks=range(len(streams)), yticklabels=list(streams), xlabel="seconds since the request")
    axes.set_xlim(left=0)
    return _finished(figure)


def stages(log: str) -> dict[str, tuple[float, float]]:
    """A start's stages out of its container's log: name -> (began, lasted), seconds since the process began."""
    found = (STAGE.search(line) for line in log.splitlines())
    return {match[2]: (float(match[1]) - float(match[3]), float(match[3])) for match in found if match}


def timeline(starts: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """The stages of each start, side by side in time; without those that took none."""
    starts = {start: {name: span for name, span in found.items() if span[1]} for start, found in starts.items()}
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.5 * len(starts)), layout="constrained")
    names = list(dict.fromkeys(name for start in starts.values() for name in start))
    colours = dict(zip(names, pyplot.get_cmap("tab20").colors, strict=False))
    for start, found in starts.items():
        for name, (began, lasted) in found.items():
            axes.barh(start, lasted, left=began, color=colours[name], label=name)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.invert_yaxis()
    axes.set(xlabel="seconds since the container's start")
    return _finished(figure)


def throughput(runs: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Tokens a second against the time to a first token and between tokens; a point for each concurrency."""
    figure, pair = pyplot.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    rates = [run["tokens_per_second"] for run in runs.values()]
    for axes, name in zip(pair, ("time_to_first_token", "time_between_tokens"), strict=True):
        for quantile, mark in (("p50", "o-"), ("p90", "s--")):
            axes.plot([run[name][quantile] * 1000 for run in runs.values()], rates, mark, label=quantile)
        for concurrency, run in runs.items():
            at = (run[name]["p50"] * 1000, run["tokens_per_second"])
            axes.annotate(f" {concurrency}", at, verticalalignment="top")
        axes.set(xlabel=f"{name.replace('_', ' ')}, ms")
        axes.legend()
    pair[0].set(ylabel="tokens a second")
    return _finished(figure)


def cost(prices: Mapping[str, float], rates: Mapping[str, float]) -> Figure:
    """What a million tokens cost at a rate, a line for each price an hour; a point where a rate was measured."""
    figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
    span = [rate * factor for rate in (min(rates.values()), max(rates.values())) for factor in (0.1, 10)]
    ends = [min(span), max(span)]
    for name, price in prices.items():
        (line,) = axes.loglog(ends, [per_million(price, rate) for rate in ends], label=f"{name}: {price} an hour")
        if name in rates:
            axes.plot(rates[name], per_million(price, rates[name]), "o", color=line.get_color())
    axes.set(xlabel="tokens a second", ylabel="cost of a million tokens")
    axes.legend()
    return _finished(figure)


def per_million(price: float, rate: float) -> float:
    """The cost of a million tokens at `rate` tokens a second, on an instance of `price` an hour that is never idle."""
    return price / 3600 / rate * 1e6


def _finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    pyplot.close(figure)  # the cell's value shows it; it is not shown twice
    return figure
