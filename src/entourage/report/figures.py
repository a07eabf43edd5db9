"""Figures of one style, as SVG text to be embedded in a page.

Matplotlib is imported on first use, because its import is slow.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, ACCENT, SOFT = "#22303c", "#2a6f97", "#a9c6d9"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#b8c4ce",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "entourage",  # equal figures give equal SVG text
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the style of the report to figures that are drawn within the block."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def to_svg(figure: Figure) -> str:
    """Return a figure as an `<svg>` element. Draw large numbers of marks with `rasterized=True`."""
    stream = io.StringIO()
    with figure_style():
        figure.savefig(stream, format="svg", bbox_inches="tight", dpi=160, metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def histogram(values: ArrayLike, *, label: str, bins: int = 20, span: tuple[float, float] = (0.0, 1.0)) -> str:
    """Return a histogram as an `<svg>` element.

    Args:
        values: numbers, of any shape; numbers outside `span` belong to the first or last bin.
        label: label of the x-axis.
        bins: number of bins.
        span: range of the bins.
    """
    with figure_style():
        figure = _figure(4.6, 2.4)
        axes = figure.subplots()
        axes.hist(np.clip(values, *span), bins=bins, range=span, color=ACCENT, rwidth=0.9)
        axes.set_xlabel(label)
        axes.set_ylabel("items")
        return to_svg(figure)


def bars(names: Sequence[str], stacks: Sequence[tuple[str, Sequence[float]]], *, label: str) -> str:
    """Return stacked horizontal bars as an `<svg>` element.

    Args:
        names: one bar per name.
        stacks: name and values of each segment of the bars, at most three segments; one value per bar.
        label: label of the x-axis.
    """
    with figure_style():
        figure = _figure(4.6, 0.6 + 0.24 * max(len(names), 4))
        axes = figure.subplots()
        left = np.zeros(len(names))
        for (part, values), colour in zip(stacks, (INK, ACCENT, SOFT), strict=False):
            axes.barh(np.arange(len(names)), values, left=left, color=colour, label=part, height=0.7)
            left += np.asarray(values, dtype=float)
        axes.set_yticks(np.arange(len(names)), [_short(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0))
        return to_svg(figure)


def curve(values: ArrayLike, *, x_label: str, y_label: str) -> str:
    """Return a line plot over 0, 1, 2, ... as an `<svg>` element."""
    with figure_style():
        figure = _figure(4.6, 2.4)
        axes = figure.subplots()
        axes.plot(np.asarray(values), color=ACCENT, linewidth=1.8)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        return to_svg(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _short(name: str, longest: int = 28) -> str:
    # a dollar sign would start math mode
    return (name if len(name) <= longest else name[: longest - 1] + "…").replace("$", r"\$")


def raster_figure(encoded: bytes, kind: Literal["png", "jpeg"], width: int, height: int) -> str:
    """Return a raster image as an `<svg>` element of the width of the page.

    Args:
        encoded: bytes of the image file.
        kind: format of the file.
        width: width in pixels.
        height: height in pixels.
    """
    data = base64.b64encode(encoded).decode("ascii")
    inside = f'<image width="{width}" height="{height}" href="data:image/{kind};base64,{data}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%">{inside}</svg>'
