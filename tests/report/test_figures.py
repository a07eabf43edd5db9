from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from entourage.report.figures import Mark, bars, curve, dots_figure, histogram, marked_figure, raster_figure, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "svg",
    [
        histogram([0.1, 0.9, 0.95], label="confidence"),
        bars(["cat", "dog"], [("given", [1, 2]), ("found", [3, 4])], label="items"),
        curve([1.0, 2.0, 2.5], x_label="round", y_label="F(X)"),
    ],
)
def test_figures_are_svg_elements_with_real_text(svg: str) -> None:
    assert svg.startswith("<svg")
    assert len(texts(svg)) > 3


def test_labels_and_legend_are_drawn() -> None:
    drawn = texts(bars(["cat", "a name that is longer than the axis has space"], [("given", [1, 2])], label="items"))
    assert {"cat", "given", "items"} <= set(drawn)
    assert any(text.endswith("…") for text in drawn)


def test_dollar_signs_do_not_start_math_mode() -> None:
    assert any("$5" in text for text in texts(bars(["$5 and $6"], [("given", [1])], label="items")))


def test_equal_figures_have_equal_texts() -> None:
    one, two = (curve([0.0, 1.0], x_label="x", y_label="y") for _ in range(2))
    assert one == two


def test_histogram_bars_are_proportional_to_counts() -> None:
    svg = histogram([0.05] * 4 + [0.95] * 2, label="x", bins=10)
    paths = re.findall(r'd="(M [^"]+z\s*)"[^>]*style="fill: #2a6f97"', svg, flags=re.S)
    heights = [
        abs(max(ys) - min(ys)) for ys in ([float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", p)] for p in paths)
    ]
    assert len(heights) == 10
    assert heights[0] == pytest.approx(2 * heights[-1])
    assert sum(height > 0 for height in heights) == 2


def test_to_svg_accepts_any_figure() -> None:
    figure = Figure()
    figure.subplots().set_title("by hand")
    assert "by hand" in texts(to_svg(figure))


def test_raster_figure_has_the_size_of_the_image() -> None:
    root = ElementTree.fromstring(raster_figure(b"packed", "png", 30, 20))
    assert (root.tag, root.get("viewBox")) == (f"{SVG}svg", "0 0 30 20")
    image = root.find(f"{SVG}image")
    assert image is not None
    assert image.get("href") == "data:image/png;base64,cGFja2Vk"


SVG = "{http://www.w3.org/2000/svg}"


def test_marks_are_escaped_and_have_class_score_and_colour() -> None:
    mark = Mark('<b>"', (1, 2, 4, 8), "#112233", 0.5, line=3)
    root = ElementTree.fromstring(marked_figure(b"packed", "png", 30, 20, [mark]))
    (rect,) = root.iter(f"{SVG}rect")
    assert [rect.get(name) for name in ("x", "y", "width", "height")] == ["1.0", "2.0", "3.0", "6.0"]
    assert (rect.get("data-class"), rect.get("data-score"), rect.get("data-color")) == ('<b>"', "0.500", "#112233")
    assert rect.get("stroke-width") == "3"


def test_dots_keep_the_shape_of_the_points() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 5.0]])
    root = ElementTree.fromstring(dots_figure(points, ["a", "a", "<b>"], ["red", "red", "blue"]))
    dots = [(float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in root.iter(f"{SVG}circle")]
    assert dots[1][0] - dots[0][0] == pytest.approx(960, abs=0.2)
    assert dots[0][1] - dots[2][1] == pytest.approx(480, abs=0.2)  # up is positive
    assert [dot.get("data-class") for dot in root.iter(f"{SVG}circle")] == ["a", "a", "<b>"]
