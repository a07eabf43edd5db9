"""Figures of one style, as SVG text to be embedded in a page.

Matplotlib is imported on first use, because its import is slow.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    return marked_figure(encoded, kind, width, height, ())


LINE_WIDTH = 1.3  # pixels


@dataclass(frozen=True)
class Mark:
    """A frame on a picture, which the legend of a report shows and hides by its class.

    Attributes:
        name: the class.
        box: left, top, right and bottom.
        colour: as in CSS, one for each class.
        score: from 0 to 1; None: it has none.
        line: width of the line in pixels of the screen.
    """

    name: str
    box: tuple[float, float, float, float]
    colour: str
    score: float | None = None
    line: float = LINE_WIDTH


def marked_figure(encoded: bytes, kind: Literal["png", "jpeg"], width: int, height: int, marks: Iterable[Mark]) -> str:
    """Return a raster image with frames as an `<svg>` element of the width of the page.

    Args:
        encoded: bytes of the image file, which may have fewer pixels.
        kind: format of the file.
        width: width in units of the marks.
        height: height in units of the marks.
        marks: the frames.
    """
    data = base64.b64encode(encoded).decode("ascii")
    size = f'width="{width}" height="{height}" preserveAspectRatio="none"'
    inside = f'<image {size} href="data:image/{kind};base64,{data}"/>'
    frames = "".join(map(_frame, marks))
    inside += f'<g fill="transparent" stroke-width="{LINE_WIDTH}">{frames}</g>' if frames else ""
    head = f'<svg class="zoom" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%">'
    return f"{head}{inside}</svg>"


def _frame(mark: Mark) -> str:
    x0, y0, x1, y1 = mark.box
    name, score = escape(mark.name), "" if mark.score is None else f' data-score="{mark.score:.3f}"'
    size = f'x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}"'
    line = "" if mark.line == LINE_WIDTH else f' stroke-width="{mark.line:g}"'
    title = name if mark.score is None else f"{name} {mark.score:.2f}"
    return (
        f'<rect class="mark" {size} stroke="{mark.colour}" color="{mark.colour}"{line} data-class="{name}"{score} '
        f'data-color="{mark.colour}"><title>{title}</title></rect>'
    )


def dots_figure(
    points: NDArray[np.float64], names: Sequence[str], colours: Sequence[str], titles: Sequence[str] | None = None
) -> str:
    """Return points of the plane as an `<svg>` element, which a legend shows and hides by class.

    Args:
        points: shape (n, 2).
        names: the class of each point.
        colours: the colour of each point.
        titles: text of each point under the pointer; None: its class.
    """
    low, span = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    places = (points - low) / span * 960 + 20  # (n, 2), equal scale on both axes
    width, height = places.max(axis=0) + 20
    radius = float(np.clip(120 / np.sqrt(len(points)), 2, 7))
    dots = (
        f'<circle cx="{x:.1f}" cy="{height - y:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.8" '
        f'data-class="{escape(name)}" data-color="{colour}"><title>{escape(title)}</title></circle>'
        for (x, y), name, colour, title in zip(places, names, colours, titles or names, strict=True)
    )
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{min(width, 700):.0f}"'
    return f'<svg class="zoom" xmlns="http://www.w3.org/2000/svg" {box}>{"".join(dots)}</svg>'
