"""The plots of the notebooks. Each draws the output of a command or of the client. Its title says what it shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib_inline.backend_inline  # noqa: F401  with it a notebook shows a figure as a picture
from matplotlib.figure import Figure

from model_packaging import plot_style as style
from model_packaging.plots import throughput as throughput

# A stage in the container's log: `[  11.1 s] import vLLM: 9.5 s`, with its end and its duration in seconds.
STAGE = re.compile(r"\[ *([\d.]+) s\] (.+): ([\d.]+) s$")
# The colour of a step in every plot. A step of a compile has that of the same step of a start.
STEPS = {
    **{"import vLLM": style.BLUE, "start engine": style.ORANGE, "restore artifacts": style.GREEN},
    **{"publish artifacts": style.PURPLE, "fetch model": style.SKY, "warm up": style.RED},
}
Stages = Mapping[str, tuple[float, float]]


def memory(checks: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Plots the memory of a logical core in GiB: a bar for each `check --json`, and the core's size."""
    cores = {name: check["memory"]["core"] for name, check in checks.items()}
    most = max(cores, key=lambda name: float(cores[name]["total_gib"]))
    available = cores[most]["available_gib"]
    figure, (axes,) = style.new_figure(
        f"{most} take {cores[most]['total_gib']} of the core's {available} GiB", height=2.6
    )
    left = dict.fromkeys(cores, 0.0)
    for part in dict.fromkeys(part["name"] for core in cores.values() for part in core["parts"]):
        gib = [sum(each["gib"] for each in core["parts"] if each["name"] == part) for core in cores.values()]
        axes.barh(list(cores), gib, left=list(left.values()), label=part)
        left = {name: before + more for (name, before), more in zip(left.items(), gib, strict=True)}
    for row, total in enumerate(left.values()):
        style.label(axes, total, row, f"{total:.1f} GiB")
    axes.axvline(available, color=style.GREY, linestyle="--")
    axes.set(xlabel=f"GiB of a logical core, which has {available}")
    axes.legend(ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def arrivals(streams: Mapping[str, Sequence[float]]) -> Figure:
    """Plots when each piece of text arrived, in seconds since the request."""
    first, last = max(times[0] for times in streams.values()), max(times[-1] for times in streams.values())
    finding = (
        f"{len(streams)} streams run at once: each has text after {first:.1f} s, and all have ended after {last:.1f} s"
    )
    figure, (axes,) = style.new_figure(finding, height=1.4 + 0.4 * len(streams))
    axes.eventplot(list(streams.values()), linelengths=0.6, colors=style.BLUE)
    axes.set(yticks=range(len(streams)), yticklabels=list(streams), xlabel="seconds since the request", xlim=(0, None))
    axes.invert_yaxis()
    return figure


def stages(log: str) -> dict[str, tuple[float, float]]:
    """Returns the stages in a container's log: name -> (start, duration), in seconds since the process began."""
    found = (STAGE.search(line) for line in log.splitlines())
    return {match[2]: (float(match[1]) - float(match[3]), float(match[3])) for match in found if match}


def timeline(starts: Mapping[str, Stages]) -> Figure:
    """Plots the stages of starts over time, and their seconds. A step has one colour, whether it compiles or not."""
    ends = {start: max(began + lasted for began, lasted in found.values()) for start, found in starts.items()}
    finding = ", ".join(f"{start}: ready after {end:.0f} s" for start, end in ends.items())
    figure, (axes,) = style.new_figure(f"{finding[:1].upper()}{finding[1:]}", height=1.4 + 0.6 * len(starts))
    for start, found in starts.items():
        bar: Any = start  # its name is a place, too, which matplotlib's types leave out
        for name, (began, lasted) in found.items():
            step = name.removeprefix("compile: ")
            shown = step if step in STEPS else "other steps"
            axes.barh(start, lasted, left=began, color=STEPS.get(step, style.GREY), edgecolor="white", label=shown)
            if lasted > 0.08 * max(ends.values()):
                axes.text(began + lasted / 2, bar, f"{lasted:.0f} s", ha="center", va="center", color="white")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), loc="center left", bbox_to_anchor=(1, 0.5))
    axes.invert_yaxis()
    axes.set(xlabel="seconds since the container's start", xlim=(0, None))
    return figure


def restored(compiled: float, found: Stages) -> Figure:
    """Plots the seconds of the compile, and those in which a start finds and restores its result.

    :param compiled: seconds of the compile, as the store's entry has them.
    """
    steps = {"compile, once": compiled, **{name: found[name][1] for name in ("find artifacts", "restore artifacts")}}
    spent = sum(steps.values()) - compiled
    finding = f"What took {compiled:.0f} s to compile is there again after {spent:.1f} s"
    figure, (axes,) = style.new_figure(finding, height=1.9)
    colours = [style.ORANGE, style.GREY, style.GREEN]
    axes.barh(list(steps), list(steps.values()), color=colours)
    for row, seconds in enumerate(steps.values()):
        style.label(axes, seconds, row, f"{seconds:.1f} s")
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel="seconds")
    return figure


def kind(path: str) -> str:
    """Returns the kind of an artifact's file: its suffix, or the directory of such files."""
    parts = path.split("/")
    suffix = parts[-1].rpartition(".")[2]
    return suffix if "." in parts[-1] and len(suffix) <= 8 else parts[1] if len(parts) > 2 else parts[0]


def store(entries: Mapping[str, Mapping[str, int]]) -> Figure:
    """Plots the files of each entry: a rectangle in proportion to each size, a column for each kind of file.

    :param entries: name -> path -> bytes.
    """
    files = sum(map(len, entries.values()))
    size = sum(size for sizes in entries.values() for size in sizes.values())
    finding = f"The store has {files} files, {size / 1e6:.1f} MB in all"
    figure, all_axes = style.new_figure(finding, rows=len(entries), height=0.5 + 2.6 * len(entries))
    for (name, sizes_of), axes in zip(entries.items(), all_axes, strict=True):
        kinds: dict[str, list[int]] = {}
        for path, size in sorted(sizes_of.items(), key=lambda one: -one[1]):
            kinds.setdefault(kind(path), []).append(size)
        left, total = 0.0, sum(sizes_of.values())
        for number, (title, sizes) in enumerate(sorted(kinds.items(), key=lambda one: -sum(one[1]))):
            width, bottom, colour = sum(sizes) / 1e6, 0.0, style.COLOURS[number % len(style.COLOURS)]
            for size in sizes:
                height = size / sum(sizes)
                axes.bar(left, height, width, bottom, align="edge", color=colour, edgecolor="white", lw=0.3)
                bottom += height
            axes.text(left, 1.02, f"{title}: {len(sizes)}", color=colour, fontsize=8)
            left += width
        axes.set(xlabel=f"MB of {name}", yticks=[], ylim=(0, 1), xlim=(0, total / 1e6))
    return figure


def cost(prices: Mapping[str, float], rates: Mapping[str, float]) -> Figure:
    """Plots the cost of a million tokens over the rate: lines for hourly prices, points for measured rates."""
    measured = {name: per_million(prices[name], rate) for name, rate in rates.items() if name in prices}
    cheapest = min(measured, key=lambda name: measured[name])
    finding = f"A million tokens cost {measured[cheapest]:.2f} ({cheapest}, {rates[cheapest]:,.0f} tokens/s)"
    figure, (axes,) = style.new_figure(finding)
    span = [rate * factor for rate in (min(rates.values()), max(rates.values())) for factor in (0.1, 10)]
    ends = [min(span), max(span)]
    for name, price in prices.items():
        (line,) = axes.loglog(ends, [per_million(price, rate) for rate in ends])
        style.label(axes, ends[1], per_million(price, ends[1]), f"{name}: {price} an hour", str(line.get_color()))
        if name in measured:
            axes.plot(rates[name], measured[name], "o", color=line.get_color())
    axes.set(xlabel="tokens/s", ylabel="cost of a million tokens")
    return figure


def per_million(price: float, rate: float) -> float:
    """Returns the cost of a million tokens at `rate` tokens per second and `price` per hour, without idle time."""
    return price / 3600 / rate * 1e6


def lengths(counts: Mapping[str, Mapping[int, int]]) -> Figure:
    """Plots how often each length occurs, one picture for each kind of length."""
    most = " and ".join(f"{_percentile(found, 0.9):,}" for found in counts.values())
    figure, row = style.new_figure(f"90 % of the lengths are at most {most}", columns=len(counts), height=2.6)
    for axes, (name, found) in zip(row, counts.items(), strict=True):
        axes.hist(list(found), bins=100, weights=list(found.values()), color=style.BLUE)
        axes.set(xlabel=name, yticks=[])
    row[0].set(ylabel="how often")
    return figure


def _percentile(counts: Mapping[int, int], share: float) -> int:
    seen, total = 0, sum(counts.values())
    for length, count in sorted(counts.items()):
        seen += count
        if seen >= share * total:
            return length
    return 0


def padding(shares: Mapping[int, Mapping[str, float]]) -> Figure:
    """Plots the share of padding over the number of graphs, a line for each phase."""
    fewest, most = min(shares), max(shares)
    falls = ", ".join(
        f"{phase} {100 * shares[fewest][phase]:.0f} to {100 * shares[most][phase]:.0f} %" for phase in shares[most]
    )
    figure, (axes,) = style.new_figure(f"{most} graphs instead of {fewest} change the padding: {falls}", height=2.6)
    for phase in shares[most]:
        axes.plot(list(shares), [100 * found[phase] for found in shares.values()], "o-", label=phase)
    axes.legend()
    axes.set(xlabel="graphs", ylabel="padding, % of computed", ylim=(0, None))
    return figure
