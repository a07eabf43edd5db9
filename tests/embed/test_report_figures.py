"""Frames, thumbnails and validation of the figures of a report."""

import base64
import io
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from entourage.embed.report import (
    COLOURS,
    CORRECT_COLOUR,
    MAP_SIDE,
    QUERY_COLOUR,
    WRONG_COLOUR,
    draw_map,
    draw_retrieval,
    plot_training_curves,
    tsne_positions,
)

SVG = "{http://www.w3.org/2000/svg}"
LABELS = ["owl", "owl", "crow", "<wren> & $5", "crow", "owl"]


def get_image(item: int) -> Image.Image:
    return Image.new("RGB", (60 + item, 40), (40 * item, 0, 255 - 40 * item))


def item_of(image: ElementTree.Element) -> int:
    """Return the item that a thumbnail shows, by its colour."""
    data = base64.b64decode(image.attrib["href"].split(",")[1])
    red = Image.open(io.BytesIO(data)).convert("RGB").resize((1, 1)).getpixel((0, 0))[0]  # type: ignore[index]
    return round(red / 40)


def test_matches_are_framed_in_green() -> None:
    svg = ElementTree.fromstring(draw_retrieval(get_image, [0, 3], [[1, 2, 5], [4, 0, 2]], LABELS))
    frames, images = svg.findall(f"{SVG}rect"), svg.findall(f"{SVG}image")
    assert [frame.attrib["fill"] for frame in frames] == [
        QUERY_COLOUR,
        CORRECT_COLOUR,
        WRONG_COLOUR,
        CORRECT_COLOUR,
        QUERY_COLOUR,
        WRONG_COLOUR,
        WRONG_COLOUR,
        WRONG_COLOUR,
    ]
    assert [item_of(image) for image in images] == [0, 1, 2, 5, 3, 4, 0, 2]
    assert [image[0].text for image in images][:2] == ["query: owl", "owl"]
    assert images[4][0].text == "query: <wren> & $5"


def test_thumbnails_lie_in_their_frames_without_overlap() -> None:
    svg = ElementTree.fromstring(draw_retrieval(get_image, [0, 3], [[1, 2], [4, 0]], LABELS))
    width, height = (float(v) for v in svg.attrib["viewBox"].split()[2:])
    boxes = []
    for frame, image in zip(svg.findall(f"{SVG}rect"), svg.findall(f"{SVG}image"), strict=True):
        x, y, side = (float(frame.attrib[name]) for name in ("x", "y", "width"))
        assert 0 <= x < float(image.attrib["x"])
        assert float(image.attrib["x"]) + float(image.attrib["width"]) < x + side <= width
        assert y + side <= height
        boxes.append((x, y, x + side, y + side))
    for (left, top, right, bottom), (x, y, far, low) in combinations(boxes, 2):
        assert right <= x or far <= left or bottom <= y or low <= top


@pytest.mark.parametrize("neighbours", [[[1, 2]], [1, 2]])
def test_neighbors_of_the_wrong_shape_raise(neighbours: object) -> None:
    with pytest.raises(ValueError, match=r"neighbors have shape .*; expected \(2, k\), a row per query"):
        draw_retrieval(get_image, [0, 3], neighbours, LABELS)  # type: ignore[arg-type]


def test_map_has_a_dot_per_item_and_a_thumbnail_per_occupied_cell() -> None:
    positions = np.array([[0.0, 0.0], [0.3, 0.2], [9.0, 9.0], [10.0, 10.0], [0.1, 10.0], [5.1, 5.1]])
    svg = ElementTree.fromstring(draw_map(get_image, positions, LABELS, cells=4))
    dots, images = svg.findall(f"{SVG}circle"), svg.findall(f".//{SVG}image")
    assert len(dots) == 6
    assert dots[0].attrib["fill"] == dots[1].attrib["fill"] == dots[5].attrib["fill"] == COLOURS[2]
    assert dots[2].attrib["fill"] == dots[4].attrib["fill"] != dots[0].attrib["fill"]
    # Items 0 and 1 share a cell, and so do 2 and 3: the one nearer to its centre is shown.
    assert sorted(item_of(image) for image in images) == [1, 2, 4, 5]
    corners = {
        (float(image.attrib["x"]) // (MAP_SIDE / 4), float(image.attrib["y"]) // (MAP_SIDE / 4)) for image in images
    }
    assert corners == {(0, 0), (3, 3), (0, 3), (2, 2)}


def test_only_displayed_images_are_read() -> None:
    read: list[int] = []

    def record(item: int) -> Image.Image:
        read.append(item)
        return get_image(item % 6)

    positions = np.random.default_rng(0).random((500, 2))
    draw_map(record, positions, np.arange(500) % 6, cells=5)
    assert len(read) == len(set(read)) <= 25


@pytest.mark.parametrize("positions", [np.zeros((6, 3)), np.full((6, 2), np.nan)])
def test_invalid_positions_raise(positions: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"positions have shape .*; expected \(items, 2\), finite"):
        draw_map(get_image, positions, LABELS)


def test_identical_positions() -> None:
    assert draw_map(get_image, np.ones((6, 2)), LABELS).count("<image") == 1


def test_tsne_is_invariant_to_lengths() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 20)
    embeddings = (np.eye(3, 8)[group] + 0.05 * rng.normal(size=(60, 8))) * rng.uniform(0.1, 10, size=(60, 1))
    positions = tsne_positions(embeddings)
    assert positions.shape == (60, 2)
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=2) + np.diag(np.full(60, np.inf))
    assert (group[distance.argmin(axis=1)] == group).mean() == 1
    np.testing.assert_array_equal(tsne_positions(embeddings), positions)


@pytest.mark.parametrize("embeddings", [np.zeros((3, 2)), np.zeros(9)])
def test_too_few_embeddings_raise(embeddings: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"embeddings have shape .*; expected \(samples, dimensions\), four"):
        tsne_positions(embeddings)


def test_training_curves_have_a_legend() -> None:
    svg = plot_training_curves({"training classes": [0.5, 0.8], "new classes": [0.4, 0.6]})
    assert svg.startswith("<svg")
    assert all(text in svg for text in ("training classes", "new classes", "Recall@1", "epoch"))
