"""The plots of the notebooks. Each draws the output of a command or of the client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure

from model_packaging.plots import throughput as throughput

# A stage in the container's log: `[  11.1 s] import vLLM: 9.5 s`, with its end and its duration in seconds.
STAGE = re.compile(r"\[ *([\d.]+) s\] (.+): ([\d.]+) s$")


def memory(checks: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Plots the memory of a logical core in GiB: a bar for each `check --json`, and the core's size."""
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
    """Plots when each piece of text arrived, in seconds since the request."""
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.4 * len(streams)), layout="constrained")
    axes.eventplot(list(streams.values()), linelengths=0.6)
    axes.set(yticks=range(len(streams)), yticklabels=list(streams), xlabel="seconds since the request")
    axes.set_xlim(left=0)
    return _finished(figure)


def stages(log: str) -> dict[str, tuple[float, float]]:
    """Returns the stages in a container's log: name -> (start, duration), in seconds since the process began."""
    found = (STAGE.search(line) for line in log.splitlines())
    return {match[2]: (float(match[1]) - float(match[3]), float(match[3])) for match in found if match}


def timeline(starts: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """Plots the stages of each start over time. Stages of zero seconds are left out."""
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
    axes.set_xlim(left=0)
    axes.set(xlabel="seconds since the container's start")
    return _finished(figure)


def kind(path: str) -> str:
    """Returns the kind of an artifact's file: its suffix, or the directory of such files."""
    parts = path.split("/")
    suffix = parts[-1].rpartition(".")[2]
    return suffix if "." in parts[-1] and len(suffix) <= 8 else parts[1] if len(parts) > 2 else parts[0]


def store(entries: Mapping[str, Mapping[str, int]]) -> Figure:
    """Plots the files of each entry: a rectangle in proportion to each size, a column for each kind of file.

    :param entries: name -> path -> bytes.
    """
    figure, column = pyplot.subplots(
        len(entries), figsize=(8, 0.5 + 2.6 * len(entries)), squeeze=False, layout="constrained"
    )
    colours = pyplot.get_cmap("tab10").colors
    for (name, files), axes in zip(entries.items(), column[:, 0], strict=True):
        kinds: dict[str, list[int]] = {}
        for path, size in sorted(files.items(), key=lambda one: -one[1]):
            kinds.setdefault(kind(path), []).append(size)
        left, total = 0.0, sum(files.values())
        for number, (label, sizes) in enumerate(sorted(kinds.items(), key=lambda one: -sum(one[1]))):
            width, bottom = sum(sizes) / 1e6, 0.0
            for size in sizes:
                height = size / sum(sizes)
                axes.bar(
                    left, height, width, bottom, align="edge", color=colours[number % 10], edgecolor="white", lw=0.3
                )
                bottom += height
            axes.bar(0, 0, color=colours[number % 10], label=f"{label}: {len(sizes)}")
            left += width
        axes.set(title=f"{name}: {len(files)} files", xlabel=f"MB, of {total / 1e6:.1f}", yticks=[], ylim=(0, 1))
        axes.set_xlim(0, total / 1e6)
        axes.spines["left"].set_visible(False)
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return _finished(figure)


def cost(prices: Mapping[str, float], rates: Mapping[str, float]) -> Figure:
    """Plots the cost of a million tokens over the rate: lines for hourly prices, points for measured rates."""
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
    """Returns the cost of a million tokens at `rate` tokens per second and `price` per hour, without idle time."""
    return price / 3600 / rate * 1e6


def lengths(counts: Mapping[str, Mapping[int, int]]) -> Figure:
    """Plots how often each length occurs, one picture for each kind of length."""
    figure, row = pyplot.subplots(1, len(counts), figsize=(8, 2.6), squeeze=False, layout="constrained")
    for axes, (name, found) in zip(row[0], counts.items(), strict=True):
        axes.hist(list(found), bins=100, weights=list(found.values()))
        axes.set(xlabel=name, yticks=[])
    return _finished(figure)


def padding(shares: Mapping[int, Mapping[str, float]]) -> Figure:
    """Plots the share of padding over the number of graphs, a line for each phase."""
    figure, axes = pyplot.subplots(figsize=(8, 2.6), layout="constrained")
    for phase in next(iter(shares.values())):
        axes.plot(list(shares), [100 * found[phase] for found in shares.values()], "o-", label=phase)
    axes.set(xlabel="graphs", ylabel="padding, % of computed")
    axes.set_ylim(bottom=0)
    axes.legend()
    return _finished(figure)


def _finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    pyplot.close(figure)  # the cell shows it as its value; without this it would be shown twice
    return figure
