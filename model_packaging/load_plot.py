"""The plot of `bench`: tokens per second against latency. matplotlib is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
OPTION = "--plot"


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
