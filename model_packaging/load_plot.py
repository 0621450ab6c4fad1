"""The picture of a bench: tokens a second against how long one waits for them. matplotlib is imported to draw it."""

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
    """Tokens a second against the time to a first token and between tokens; a point for each number at a time.

    :param runs: by the number of requests at a time, what `load.summary` returns.
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
    """Before a load is sent whose picture nobody could have.

    :raises SettingError: no picture can be written there.
    """
    if path.suffix.lower() not in FORMATS:
        raise SettingError(OPTION, f"'{path}' is no picture", f"End it in {', '.join(FORMATS)}.")
    if not path.absolute().parent.is_dir():
        raise SettingError(OPTION, f"there is no directory {path.absolute().parent}", "Make it first.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SettingError(OPTION, "matplotlib is not installed", "pip install 'neuron-endpoint[plot]'") from None
