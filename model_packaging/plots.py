"""The plots of `bench` and `size --log`. matplotlib is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from model_packaging.sizing.request_log import RequestLengths
    from model_packaging.sizing.tuned_plan import Tuning

FORMATS = (".png", ".svg", ".pdf")
OPTION = "--plot"
BARS = 80
COLOURS = {"today": "tab:red", "proposed": "tab:green"}


def throughput(runs: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Plots tokens per second against time to first token and time between tokens. Each concurrency is a point.

    :param runs: the result of `load_measurement.summary` for each concurrency.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(pair, ("time_to_first_token", "time_between_tokens"), strict=True):
        drawn = {at: run for at, run in runs.items() if run[name] is not None}
        rates = [run["tokens_per_second"] for run in drawn.values()]
        for quantile, mark in (("p50", "o-"), ("p90", "s--")):
            axes.plot([run[name][quantile] * 1000 for run in drawn.values()], rates, mark, label=quantile)
        for concurrency, run in drawn.items():
            at = (run[name]["p50"] * 1000, run["tokens_per_second"])
            axes.annotate(f" {concurrency}", at, verticalalignment="top")
        axes.set(xlabel=f"{name.replace('_', ' ')}, ms")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend()
    pair[0].set(ylabel="tokens a second")
    return figure


def check(path: Path) -> None:
    """Checks that the plot can be written, before a load is sent.

    :raises SettingError: it cannot be written there.
    """
    if path.suffix.lower() not in FORMATS:
        raise SettingError(OPTION, f"'{path}' is no picture", f"End it in {', '.join(FORMATS)}.")
    if not path.absolute().parent.is_dir():
        raise SettingError(OPTION, f"there is no directory {path.absolute().parent}", "Make it first.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SettingError(OPTION, "matplotlib is not installed", "pip install 'neuron-endpoint[plot]'") from None


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
