"""The plots of `bench` and `size --log`. matplotlib is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.errors import SettingError
from model_packaging import plot_style as style
from model_packaging.console.output import require_writable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from model_packaging.sizing.request_log import RequestLengths
    from model_packaging.sizing.tuned_plan import Tuning

FORMATS = (".png", ".svg", ".pdf")
OPTION = "--plot"
BARS = 80
COLOURS = {"today": style.RED, "proposed": style.GREEN}
LATENCIES = {"time_to_first_token": "time to first token", "time_between_tokens": "time between tokens"}


def throughput(runs: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Plots tokens per second against both latencies: a point for each concurrency, and a line to the 90th percentile.

    :param runs: the result of `load_measurement.summary` for each concurrency.
    """
    answered = {at: run for at, run in sorted(runs.items()) if all(run[name] for name in LATENCIES)}
    figure, pair = style.new_figure(_finding(answered), columns=2)
    for axes, (name, title) in zip(pair, LATENCIES.items(), strict=True):
        # In the order of the rates no line crosses another.
        drawn = sorted((run["tokens_per_second"], run[name], at) for at, run in answered.items())
        rates, times = [rate for rate, _, _ in drawn], [time for _, time, _ in drawn]
        half, most = ([time[end] * 1000 for time in times] for end in ("p50", "p90"))
        axes.plot(half, rates, "o-", color=style.BLUE)
        axes.hlines(rates, half, most, color=style.SKY)
        for rate, time, at in drawn:
            style.label(axes, time["p50"] * 1000, rate, f"{at} at a time" if at == min(answered) else str(at))
        axes.set(xlabel=f"{title}, ms (p50, line to p90)")
        axes.margins(x=0.1, y=0.15)
        axes.set(xlim=(0, None), ylim=(0, None))
    pair[0].set(ylabel="tokens/s")
    return figure


def _finding(runs: Mapping[int, Mapping[str, Any]]) -> str:
    if not runs:
        return "No request was answered"
    first, last = min(runs), max(runs)
    rates = [runs[at]["tokens_per_second"] for at in (first, last)]
    waits = [f"{runs[at]['time_to_first_token']['p50'] * 1000:,.0f}" for at in (first, last)]
    if first == last:
        return f"{last} at a time: {rates[1]:,.0f} tokens/s, first token after {waits[1]} ms"
    rate = f"{rates[1]:,.0f} instead of {rates[0]:,.0f} tokens/s"
    return f"{last} at a time instead of {first}: {rate}, first token after {waits[1]} instead of {waits[0]} ms"


def check(path: Path) -> None:
    """Checks that the plot can be written, before a load is sent.

    :raises SettingError: it cannot be written there.
    """
    if path.suffix.lower() not in FORMATS:
        raise SettingError(OPTION, f"'{path}' is no picture", f"End it in {', '.join(FORMATS)}.")
    require_writable(OPTION, path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SettingError(OPTION, "matplotlib is not installed", "pip install matplotlib") from None


def padding_plot(tuning: Tuning, lengths: RequestLengths) -> Figure:
    """Plots both phases: how often each length occurs, and the tokens that it computes with either set of buckets."""
    costs = {"today": tuning.today, "proposed": tuning.proposed}
    shares = {
        phase: [getattr(cost, phase).padding / max(getattr(cost, phase).computed, 1) for cost in costs.values()]
        for phase in ("prefill", "decode")
    }
    falls = ", ".join(f"{phase} {today:.0%} to {proposed:.0%}" for phase, (today, proposed) in shares.items())
    figure, pair = style.new_figure(f"The share of padding changes: {falls}", columns=2, height=3.6)
    for axes, phase, counts in zip(pair, shares, (lengths.prompts, lengths.contexts), strict=True):
        if not counts:
            continue
        longest = max(counts)
        places = [max(1, round(longest * at / 400)) for at in range(401)]
        for (name, cost), share in zip(costs.items(), shares[phase], strict=True):
            computed = cost.buckets.prefill_tokens if phase == "prefill" else cost.buckets.decode_tokens
            text = f"{name}: {share:.0%}"
            axes.plot(places, [computed(place) for place in places], color=COLOURS[name], label=text)
        axes.plot([0, longest], [0, longest], color=style.GREY, linestyle=":", label="asked")
        _bars(axes, counts, longest)
        axes.set(xlabel=f"tokens of {'a prompt' if phase == 'prefill' else 'context'} (bars: how often)")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.12))
    pair[0].set(ylabel="tokens computed")
    return figure


def _bars(axes: Axes, counts: Mapping[int, int], longest: int) -> None:
    """The distribution, on an axis of its own."""
    heights, width = [0] * BARS, longest / BARS
    for length, count in counts.items():
        heights[min(int(length / width), BARS - 1)] += count
    other = axes.twinx()
    other.bar([(at + 0.5) * width for at in range(BARS)], heights, width, color=style.SKY, alpha=0.35)
    other.set(yticks=[], ylim=(0, 3 * max(heights)))
