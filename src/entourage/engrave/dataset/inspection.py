"""Inspection of data sets: symbols per page and class (thesis, chapter 5), pictures of classes, drawn annotations."""

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
from entourage.report.figures import Mark, figure_style, marked_figure, raster_figure, to_svg
from entourage.report.page import Block, Section, write_page
from entourage.symbols import FULL_IDS, ClassSet, class_ids

_CELL_WIDTH, _CELL_HEIGHT, _NAME_HEIGHT, _COLUMNS = 120, 170, 34, 12
_FONT_SCALE = 0.42  # maximum font size of the names below the pictures
_N_TOP = 10
N_PAGES = 3  # with boxes in the report
_PAGE_WIDTH = 1200  # pixels


@dataclass(frozen=True)
class Summary:
    """Summary statistics of numbers (first table of chapter 5)."""

    mean: float
    std: float
    median: float
    maximum: float
    minimum: float

    @classmethod
    def from_values(cls, values: ArrayLike) -> Summary:
        """Return the statistics of one or more numbers."""
        array = np.asarray(values, dtype=float)
        numbers = (array.mean(), array.std(), np.median(array), array.max(), array.min())
        return cls(*(float(number) for number in numbers))


@dataclass(frozen=True)
class SymbolStatistics:
    """Numbers of symbols in a data set, by page and by class.

    Attributes:
        pages: number of symbols on each page.
        classes: number of symbols of each class of the list, in decreasing order.
        class_list: the list of classes.
    """

    pages: pd.Series[int]
    classes: pd.Series[int]
    class_list: ClassSet

    @property
    def top_ten_fraction(self) -> float:
        """Fraction of all symbols that belong to the ten most frequent classes."""
        return float(self.classes.iloc[:_N_TOP].sum() / max(self.classes.sum(), 1))

    @property
    def absent(self) -> list[str]:
        """Classes of the list that have no symbols in the data set."""
        return [str(name) for name in self.classes.index[self.classes == 0]]

    def table(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table, the header first: name of the statistic, value for pages, value for classes."""
        page_summary, class_summary = asdict(Summary.from_values(self.pages)), asdict(Summary.from_values(self.classes))
        names = {"mean": "mean", "std": "standard deviation", "median": "median"}
        names |= {"maximum": "maximum", "minimum": "minimum"}
        rows = [(name, f"{page_summary[key]:,.1f}", f"{class_summary[key]:,.1f}") for key, name in names.items()]
        return [("statistic", "symbols per page", "symbols per class"), *rows]


def count_symbols(folder: Path, classes: ClassSet = "extended") -> SymbolStatistics:
    """Count the symbols of a data set by page and class.

    Args:
        folder: data set from `entourage engrave`.
        classes: list of classes: "extended", "full", "v1" or "v1-118".

    Returns:
        The counts.

    Raises:
        ValueError: the folder is not a data set, has no symbols, or the list of classes is not one of these.
    """
    if classes == "muscima":
        raise ValueError("classes: 'muscima' is not supported; expected extended, full, v1 or v1-118")
    table = read_table(folder, ["page", _column(classes)])
    names = class_ids(classes)
    labels = table[_column(classes)]
    in_list = labels.isin(list(names))
    if not in_list.any():
        raise ValueError(f"{folder}: contains no symbols; expected at least one")
    pages = table["page"][in_list].value_counts().reindex(table["page"].unique(), fill_value=0).sort_index()
    counts = labels[in_list].value_counts().reindex(list(names), fill_value=0)
    return SymbolStatistics(pages, counts.sort_values(ascending=False, kind="stable"), classes)


def contact_sheet(folder: Path, statistics: SymbolStatistics) -> NDArray[np.uint8]:
    """Draw an example of each class that occurs, in decreasing order of frequency, with its name and count.

    Args:
        folder: data set from `entourage engrave`.
        statistics: its counts.

    Returns:
        Greyscale image, shape (height, width).
    """
    column = _column(statistics.class_list)
    table = read_table(folder, ["page", column, "x0", "y0", "x1", "y1"])
    # The example is the median row: neither the first page nor the last is typical.
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
            size = _FONT_SCALE * min(1.0, (_CELL_WIDTH - 8) / text_width)  # names fit into their cells
            position = (x + 4, y + _CELL_HEIGHT + 11 + 15 * line)
            cv2.putText(sheet, text, position, cv2.FONT_HERSHEY_SIMPLEX, size, 0, 1, cv2.LINE_AA)
    return sheet


def _patches(folder: Path, sample: dict[str, pd.Series]) -> dict[str, NDArray[np.uint8]]:
    """Cut the example of each class out of its page, with one page in memory at a time."""
    pages: dict[str, list[str]] = {}
    for name, row in sample.items():
        pages.setdefault(row["page"], []).append(name)
    patches = {}
    for page, names in pages.items():
        image = read_grey(folder / "images" / f"{page}.png")
        for name in names:
            box = sample[name][["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.int64)
            patches[name] = cut_patch(image, box, _CELL_WIDTH - 8, _CELL_HEIGHT - 8)
        del image  # frees its memory before the next page is read
    return patches


def write_statistics(folder: Path, statistics: SymbolStatistics, out: Path) -> None:
    """Write the statistics of a data set as report.html, classes.csv and contact_sheet.png.

    Args:
        folder: data set from `entourage engrave`.
        statistics: its counts.
        out: folder for the files.
    """
    frame = pd.DataFrame({"class": statistics.classes.index, "symbols": statistics.classes.to_numpy()})
    with atomic_path(out / "classes.csv") as temporary:
        frame.to_csv(temporary, index=False)
    sheet = contact_sheet(folder, statistics)
    png = encode_png(sheet, dpi=100, level=6)
    with atomic_path(out / "contact_sheet.png") as temporary:
        temporary.write_bytes(png)
    lead = f"{len(statistics.pages):,} pages with {int(statistics.classes.sum()):,} symbols of {len(frame)} classes. "
    lead += f"The ten most frequent classes have {statistics.top_ten_fraction:.0%} of them; "
    lead += f"{len(statistics.absent)} do not occur."
    blocks = [
        Block("Symbols per page and per class", table=statistics.table()),
        Block("Pages by number of symbols", figure=_histogram(statistics.pages.to_numpy())),
    ]
    order = Block("Symbols of each class", figure=_frequencies(statistics.classes))
    examples = Block(
        "Example and number of symbols of each class", figure=raster_figure(png, "png", *sheet.shape[::-1])
    )
    present = [(str(name), str(count)) for name, count in statistics.classes.items() if count]
    table = Block("Classes", table=[("class", "symbols"), *present])
    pages = [
        Block(name, figure=_page_figure(folder, name, statistics.class_list), legend=True)
        for name in statistics.pages.index[:N_PAGES]
    ]
    sections = [
        Section("Statistics", lead, blocks, wide=[order, table, examples]),
        Section("Pages", "The boxes of the first pages; the switches show and hide classes.", wide=pages),
    ]
    write_page(out / "report.html", "Engraved pages", str(folder), sections)


def _page_figure(folder: Path, page: str, class_list: ClassSet) -> str:
    """Return a page as an `<svg>` element with the boxes of its symbols."""
    image, rows = read_annotated_page(folder / "images" / f"{page}.png")
    height, width = image.shape[:2]
    scale = min(1.0, _PAGE_WIDTH / width)
    small = cv2.resize(image, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_AREA)
    jpeg = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 75])[1]
    column = _column(class_list)
    marks = []
    for row in rows:
        label = _label(row)
        if label and row[column] and label not in ("staff", "staffLine"):
            blue, green, red = class_colour(label)
            box = (row["x0"], row["y0"], row["x1"], row["y1"])
            marks.append(Mark(row[column], box, f"#{red:02x}{green:02x}{blue:02x}"))
    return marked_figure(jpeg.tobytes(), "jpeg", width, height, marks)


def _histogram(counts: NDArray[np.integer]) -> str:
    """Draw a histogram of the numbers of symbols per page on a logarithmic scale."""
    with figure_style():
        figure = Figure(figsize=(4.6, 2.6))
        axes = figure.subplots()
        top = max(int(counts.max()), 10)
        axes.hist(counts, bins=np.geomspace(1, top * 1.01, 30).tolist(), density=True, color="#2a6f97")
        axes.set_xscale("log")
        axes.set_xlabel("symbols on a page")
        axes.set_ylabel("density")
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
    """Read the image and the annotations of a page of a data set.

    Args:
        path: the image, DIR/images/PAGE.png.

    Returns:
        The image in BGR, shape (height, width, 3), and the rows of its symbols in symbols.parquet.

    Raises:
        ValueError: the image cannot be read, or the table of the data set does not exist or lacks the page.
    """
    image = cv2.imread(str(path), cv2.IMREAD_COLOR) if path.is_file() else None  # a pipe would block
    if image is None:
        raise ValueError(f"{path}: cannot be read as an image; expected DIR/images/PAGE.png")
    table = path.parent.parent / "symbols.parquet"
    if not table.is_file():
        raise ValueError(f"{table}: does not exist; expected the table of the data set of {path}")
    with parquet_errors(table, "entourage engrave"):
        rows = pq.read_table(table, filters=[("page", "=", path.stem)]).to_pylist()
    if not rows:
        raise ValueError(f"{table}: has no page {path.stem!r}; expected the image of one of its pages")
    return np.asarray(image, dtype=np.uint8), rows


def draw_annotations(image: Colour, rows: list[dict[str, Any]], layers: Collection[Layer] = LAYERS) -> Colour:
    """Draw the annotations of a page on a copy of its image.

    Args:
        image: the page in BGR, shape (height, width, 3).
        rows: the rows of its symbols in symbols.parquet.
        layers: annotations to draw. With labels and onsets, noteheads have "class onset/position/duration".

    Returns:
        The drawing, of the shape of the image.
    """
    canvas = image.copy()
    height = image.shape[0]
    symbols = [row for row in rows if _label(row)]
    if "masks" in layers:
        for row in symbols:
            x, y = mask_pixels(row["mask"], height)
            canvas[y, x] = (0.45 * canvas[y, x] + 0.55 * np.array(class_colour(_label(row)))).astype(np.uint8)
    for row in symbols:
        if row["label"] == "staff":
            continue
        colour = class_colour(_label(row))
        if "boxes" in layers:
            corners = np.round(np.array(row["oriented"]).reshape(4, 1, 2)).astype(np.int32)
            cv2.polylines(canvas, [corners], True, colour, 1, cv2.LINE_AA)
        text = _caption(row, layers)
        if text:
            cv2.putText(
                canvas, text, (row["x0"], row["y0"] - 3), cv2.FONT_HERSHEY_SIMPLEX, 0.32, colour, 1, cv2.LINE_AA
            )
    return canvas


def _label(row: dict[str, Any]) -> str:
    """Return the class of a symbol in the full list, which tables of earlier versions lack, or in the extended list."""
    return str(row.get("full") or row["label"])


def _column(class_list: ClassSet) -> str:
    """Return the column of the table with the classes of a list."""
    return {"extended": "label", "full": "full"}.get(class_list, "v1")


def class_colour(label: str) -> tuple[int, int, int]:
    """Return a colour in BGR that differs from those of adjacent classes in the list."""
    hue = (FULL_IDS[label] * 0.618034) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.9, 0.75)
    return int(255 * blue), int(255 * green), int(255 * red)


def _caption(row: dict[str, Any], layers: Collection[Layer]) -> str:
    """Return the text above a symbol; stems, beams and ledger lines have no label, because texts would overlap."""
    named = "labels" in layers and _label(row) not in ("stem", "legerLine", "beam", "barlineSingle", "barlineSystemic")
    notehead = row["label"].startswith("notehead")
    words = [_label(row)] if named else []
    if "onsets" in layers and row["onset"] is not None and (notehead or row["label"].startswith("rest") or named):
        times = f"{row['onset']:g}"
        words.append(f"{times}/{row['position']}/{row['duration']:g}" if notehead else times)
    return " ".join(words)
