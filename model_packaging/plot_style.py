"""The style of every plot, here and in the notebooks: font, colours, grid, labels. A title says what the plot shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")
BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY = COLOURS
STYLE: Any = {
    **{"font.family": "DejaVu Sans", "font.size": 9, "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
    **{"axes.grid": True, "grid.color": "#e4e4e4", "axes.prop_cycle": f"cycler('color', {list(COLOURS)})"},
}


def new_figure(finding: str, *, columns: int = 1, rows: int = 1, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """Returns a figure with its title, and its axes from left to right and from top to bottom. Height in inches."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update(STYLE)
    figure = Figure(figsize=(8, height), layout="constrained")
    figure.suptitle(finding, x=0.01, horizontalalignment="left", fontsize=10, fontweight="bold")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def label(axes: Axes, x: float, y: float, text: str, colour: str = "#333333") -> None:
    """Writes a label to the right of a point, a little above it."""
    axes.annotate(text, (x, y), (6, 2), textcoords="offset points", color=colour, fontsize=8)
