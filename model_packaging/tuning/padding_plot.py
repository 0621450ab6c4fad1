"""The plot of `tune`: the lengths of the log, and the buckets of today and of the proposal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from model_packaging.tuning.length_log import RequestLengths
from model_packaging.tuning.tuned_plan import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS = 80
COLOURS = {"today": "tab:red", "proposed": "tab:green"}


def padding_plot(tuning: Tuning, lengths: RequestLengths) -> Figure:
    """Plots both phases: how often each length occurs, and the tokens that it computes with either set of buckets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    pair = figure.subplots(1, 2)
    costs = {"today": tuning.today, "proposed": tuning.proposed}
    for axes, phase, counts in zip(pair, ("prefill", "decode"), (lengths.prompts, lengths.contexts), strict=True):
        if not counts:
            continue
        longest = max(counts)
        for name, cost in costs.items():
            computed = cost.buckets.prefill_tokens if phase == "prefill" else cost.buckets.decode_tokens
            share = cost.prefill if phase == "prefill" else cost.decode
            places = [max(1, round(longest * at / 400)) for at in range(401)]
            label = f"{name}: {share.padding / max(share.computed, 1):.0%} padding"
            axes.plot(places, [computed(place) for place in places], color=COLOURS[name], label=label)
        axes.plot([0, longest], [0, longest], color="grey", linestyle=":", label="asked")
        _bars(axes, counts, longest)
        axes.set(title=phase, xlabel="tokens of a prompt" if phase == "prefill" else "tokens of context")
        axes.legend(fontsize=7, loc="upper left")
    pair[0].set(ylabel="tokens computed")
    return figure


def _bars(axes: Axes, counts: Mapping[int, int], longest: int) -> None:
    """The distribution, on an axis of its own."""
    heights, width = [0] * BARS, longest / BARS
    for length, count in counts.items():
        heights[min(int(length / width), BARS - 1)] += count
    other = axes.twinx()
    other.bar([(at + 0.5) * width for at in range(BARS)], heights, width, color="tab:blue", alpha=0.25)
    other.set(yticks=[], ylim=(0, 3 * max(heights)))
    other.spines[["top", "right"]].set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
