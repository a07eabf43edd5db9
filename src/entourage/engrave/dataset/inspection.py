"""The tables of chapter 5 for any data set: how many symbols pages and classes have, and what classes look like.

A page with its ground truth drawn on it: boxes, labels, masks and onsets.
"""

from __future__ import annotations

import colorsys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from entourage.engrave.dataset.formats import read_table
from entourage.engrave.dataset.patches import cut_patch
from entourage.engrave.render.encoding import encode_png, mask_pixels, read_grey
from entourage.io.files import atomic_path
from entourage.io.safe_formats import parquet_errors
from entourage.report.figures import figure_style, raster_figure, to_svg
from entourage.report.page import Block, Section, write_page
from entourage.symbols import EXTENDED_IDS, ClassSet, class_ids

_CELL_WIDTH, _CELL_HEIGHT, _NAME_HEIGHT, _COLUMNS = 120, 170, 34, 12
_FONT_SCALE = 0.42  # size of the names below pictures, where they have room
_N_TOP = 10


@dataclass(frozen=True)
class Summary:
    """How numbers are spread (the first table of chapter 5)."""

    mean: float
    std: float
    median: float
    maximum: float
    minimum: float

    @classmethod
    def from_values(cls, values: ArrayLike) -> Summary:
        """The spread of numbers, of which there must be at least one."""
        array = np.asarray(values, dtype=float)
        numbers = (array.mean(), array.std(), np.median(array), array.max(), array.min())
        return cls(*(float(number) for number in numbers))


@dataclass(frozen=True)
class SymbolStatistics:
    """What a data set holds.

    Attributes:
        pages: the number of symbols on each page.
        classes: the number of symbols of each class, the commonest first; classes that do not occur are last, with 0.
        class_list: the list of classes that is counted.
    """

    pages: pd.Series[int]
    classes: pd.Series[int]
    class_list: ClassSet

    @property
    def top_ten_fraction(self) -> float:
        """The share of all symbols that belong to the ten commonest classes."""
        return float(self.classes.iloc[:_N_TOP].sum() / max(self.classes.sum(), 1))

    @property
    def absent(self) -> list[str]:
        """The classes without a single symbol."""
        return [str(name) for name in self.classes.index[self.classes == 0]]

    def table(self) -> list[tuple[str, str, str]]:
        """Rows for people: the measure, its value for pages, its value for classes."""
        page_summary, class_summary = asdict(Summary.from_values(self.pages)), asdict(Summary.from_values(self.classes))
        names = {"mean": "mean", "std": "standard deviation", "median": "median"}
        names |= {"maximum": "maximum", "minimum": "minimum"}
        rows = [(name, f"{page_summary[key]:,.1f}", f"{class_summary[key]:,.1f}") for key, name in names.items()]
        return [("statistic", "symbols a page", "symbols a class"), *rows]


def count_symbols(folder: Path, classes: ClassSet = "extended") -> SymbolStatistics:
    """Counts the symbols of a data set that `entourage engrave` has made.

    Args:
        folder: the data set.
        classes: which list to count: "extended", "v1" or "v1-118".

    Raises:
        ValueError: the folder is no such data set, it is empty, or the list is not one of these.
    """
    table = read_table(folder, ["page", "label", "v1"])
    if classes == "muscima":
        raise ValueError("class list 'muscima' is not counted; expected extended, v1 or v1-118")
    names = class_ids(classes)
    labels = table["label" if classes == "extended" else "v1"]
    counted_rows = labels.isin(list(names))
    if not counted_rows.any():
        raise ValueError(f"{folder} holds no symbols; expected at least one")
    pages = table["page"][counted_rows].value_counts().reindex(table["page"].unique(), fill_value=0).sort_index()
    counts = labels[counted_rows].value_counts().reindex(list(names), fill_value=0)
    return SymbolStatistics(pages, counts.sort_values(ascending=False, kind="stable"), classes)


def contact_sheet(folder: Path, statistics: SymbolStatistics) -> NDArray[np.uint8]:
    """One picture of each class that occurs, ordered by frequency, with its name and count below."""
    column = "label" if statistics.class_list == "extended" else "v1"
    table = read_table(folder, ["page", column, "x0", "y0", "x1", "y1"])
    # The middle one of the symbols that occur: neither the first page nor the last is typical.
    sample = {name: rows.iloc[len(rows) // 2] for name, rows in table.groupby(column)}
    names = [str(name) for name in statistics.classes.index[statistics.classes > 0]]
    rows = -(-len(names) // _COLUMNS)
    height = _CELL_HEIGHT + _NAME_HEIGHT
    sheet = np.full((rows * height, _COLUMNS * _CELL_WIDTH), 255, dtype=np.uint8)
    patches = _patches(folder, {name: sample[name] for name in names})
    for k, name in enumerate(names):
        y, x = (k // _COLUMNS) * height, (k % _COLUMNS) * _CELL_WIDTH
        sheet[y + 4 : y + _CELL_HEIGHT - 4, x + 4 : x + _CELL_WIDTH - 4] = patches[name]
        for line, text in enumerate((name, f"{statistics.classes[name]:,}")):
            text_width = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, _FONT_SCALE, 1)[0][0]
            size = _FONT_SCALE * min(1.0, (_CELL_WIDTH - 8) / text_width)  # no name runs into the next
            position = (x + 4, y + _CELL_HEIGHT + 11 + 15 * line)
            cv2.putText(sheet, text, position, cv2.FONT_HERSHEY_SIMPLEX, size, 0, 1, cv2.LINE_AA)
    return sheet


def _patches(folder: Path, sample: dict[str, pd.Series]) -> dict[str, NDArray[np.uint8]]:
    """The picture of each class, cut out page by page, so that one page at a time is in memory."""
    pages: dict[str, list[str]] = {}
    for name, row in sample.items():
        pages.setdefault(row["page"], []).append(name)
    patches = {}
    for page, names in pages.items():
        image = read_grey(folder / "images" / f"{page}.png")
        for name in names:
            box = sample[name][["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.int64)
            patches[name] = cut_patch(image, box, _CELL_WIDTH - 8, _CELL_HEIGHT - 8)
        del image  # before the next is read
    return patches


def write_statistics(folder: Path, statistics: SymbolStatistics, out: Path) -> None:
    """Writes report.html, classes.csv and contact_sheet.png into a folder."""
    frame = pd.DataFrame({"class": statistics.classes.index, "symbols": statistics.classes.to_numpy()})
    with atomic_path(out / "classes.csv") as temporary:
        frame.to_csv(temporary, index=False)
    sheet = contact_sheet(folder, statistics)
    png = encode_png(sheet, dpi=100, level=6)
    with atomic_path(out / "contact_sheet.png") as temporary:
        temporary.write_bytes(png)
    lead = f"{len(statistics.pages):,} pages with {int(statistics.classes.sum()):,} symbols of {len(frame)} classes. "
    lead += f"The ten commonest classes hold {statistics.top_ten_fraction:.0%} of them; "
    lead += f"{len(statistics.absent)} do not occur."
    blocks = [
        Block("Symbols a page and a class", table=statistics.table()),
        Block("Pages by number of symbols", figure=_histogram(statistics.pages.to_numpy())),
    ]
    order = Block("Symbols of each class", figure=_frequencies(statistics.classes))
    examples = Block("One of each class, and how many there are", figure=raster_figure(png, "png", *sheet.shape[::-1]))
    sections = [Section("Statistics", lead, blocks, wide=[order, examples])]
    write_page(out / "report.html", "Engraved pages", str(folder), sections)


def _histogram(counts: NDArray[np.integer]) -> str:
    """How often pages have so many symbols, on a logarithmic scale."""
    with figure_style():
        figure = Figure(figsize=(4.6, 2.6))
        axes = figure.subplots()
        top = max(int(counts.max()), 10)
        axes.hist(counts, bins=np.geomspace(1, top * 1.01, 30).tolist(), density=True, color="#2a6f97")
        axes.set_xscale("log")
        axes.set_xlabel("symbols on a page")
        axes.set_ylabel("share of pages")
        return to_svg(figure)


def _frequencies(classes: pd.Series[int]) -> str:
    with figure_style():
        figure = Figure(figsize=(11, 3.4))
        axes = figure.subplots()
        axes.bar(np.arange(len(classes)), np.maximum(classes.to_numpy(), 0.5), color="#2a6f97", width=0.8)
        axes.set_yscale("log")
        axes.set_xticks(np.arange(len(classes)), [str(name) for name in classes.index], rotation=90, fontsize=4)
        axes.set_xlim(-1, len(classes))
        axes.set_ylabel("symbols")
        return to_svg(figure)


Layer = Literal["boxes", "labels", "masks", "onsets"]
LAYERS: tuple[Layer, ...] = ("boxes", "labels", "masks", "onsets")
Colour = NDArray[np.uint8]


def read_annotated_page(path: Path) -> tuple[Colour, list[dict[str, Any]]]:
    """The image of a page of a data set, in BGR, and the rows of its symbols.

    Args:
        path: the image, DIR/images/PAGE.png.

    Raises:
        ValueError: there is no such image, or no data set around it that knows the page.
    """
    image = cv2.imread(str(path), cv2.IMREAD_COLOR) if path.is_file() else None  # a pipe would block
    if image is None:
        raise ValueError(f"{path} cannot be read as an image; expected DIR/images/PAGE.png")
    table = path.parent.parent / "symbols.parquet"
    if not table.is_file():
        raise ValueError(f"{table} does not exist; expected the table of the data set that {path} belongs to")
    with parquet_errors(table, "entourage engrave"):
        rows = pq.read_table(table, filters=[("page", "=", path.stem)]).to_pylist()
    if not rows:
        raise ValueError(f"{table} knows no page {path.stem!r}; expected the image of one of its pages")
    return np.asarray(image, dtype=np.uint8), rows


def draw_annotations(image: Colour, rows: list[dict[str, Any]], layers: Collection[Layer] = LAYERS) -> Colour:
    """Draws the ground truth on a copy of the page.

    Args:
        image: the page in BGR, shape (height, width, 3).
        rows: its symbols, as rows of the table.
        layers: what to draw. Labels of noteheads are "class onset/position/duration" if onsets are drawn.
    """
    canvas = image.copy()
    height = image.shape[0]
    symbols = [row for row in rows if row["label"]]
    if "masks" in layers:
        for row in symbols:
            x, y = mask_pixels(row["mask"], height)
            canvas[y, x] = (0.45 * canvas[y, x] + 0.55 * np.array(class_colour(row["label"]))).astype(np.uint8)
    for row in symbols:
        if row["label"] == "staff":
            continue
        colour = class_colour(row["label"])
        if "boxes" in layers:
            corners = np.round(np.array(row["oriented"]).reshape(4, 1, 2)).astype(np.int32)
            cv2.polylines(canvas, [corners], True, colour, 1, cv2.LINE_AA)
        text = _caption(row, layers)
        if text:
            cv2.putText(
                canvas, text, (row["x0"], row["y0"] - 3), cv2.FONT_HERSHEY_SIMPLEX, 0.32, colour, 1, cv2.LINE_AA
            )
    return canvas


def class_colour(label: str) -> tuple[int, int, int]:
    """A colour for each class, far from those of its neighbours in the list, in BGR."""
    hue = (EXTENDED_IDS[label] * 0.618034) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.9, 0.75)
    return int(255 * blue), int(255 * green), int(255 * red)


def _caption(row: dict[str, Any], layers: Collection[Layer]) -> str:
    """What is written above a symbol; stems, beams and leger lines stay without, lest nothing can be read."""
    named = "labels" in layers and row["label"] not in ("stem", "legerLine", "beam")
    notehead = row["label"].startswith("notehead")
    words = [row["label"]] if named else []
    if "onsets" in layers and row["onset"] is not None and (notehead or row["label"].startswith("rest") or named):
        times = f"{row['onset']:g}"
        words.append(f"{times}/{row['position']}/{row['duration']:g}" if notehead else times)
    return " ".join(words)
