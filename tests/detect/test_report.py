from __future__ import annotations

import base64
import io
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import torch
from PIL import Image

from entourage.detect.detections import Detections
from entourage.detect.report import (
    MAX_ROWS,
    RED,
    boxes_figure,
    class_colour,
    draw_detections,
    run_sections,
)

CLASSES = ("stem", "clefG", "staff", "staffLine")


def found(label: int, box: tuple[float, float, float, float], score: float = 1.0) -> Detections:
    return Detections(torch.tensor([box]), torch.tensor([label]), torch.tensor([score]), CLASSES)


def test_a_frame_is_drawn_on_the_edge_of_the_box_only() -> None:
    page = np.full((100, 120), 255, dtype=np.uint8)
    drawn = draw_detections(page, found(1, (20, 30, 60, 80)))
    changed = (drawn != 255).any(axis=2)
    rows, columns = np.nonzero(changed)
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (20, 30, 60, 80)
    assert not changed[40:70, 30:50].any()
    assert tuple(drawn[30, 40]) == class_colour(1)
    assert (page == 255).all()  # the input is unchanged


def test_infrequent_classes_have_names_and_staves_are_not_drawn() -> None:
    page = np.full((100, 120), 255, dtype=np.uint8)
    named = draw_detections(page, found(2, (20, 30, 60, 80)))
    bare = draw_detections(page, found(2, (20, 30, 60, 80)), labels=False)
    assert (named[:28] != 255).any()
    assert (bare[:28] == 255).all()
    for staff in (3, 4):
        assert (draw_detections(page, found(staff, (20, 30, 60, 80))) == 255).all()


def test_frames_of_a_figure_have_class_score_and_place_on_the_page() -> None:
    page = np.full((100, 3000), 255, dtype=np.uint8)
    root = ElementTree.fromstring(boxes_figure(page, found(2, (20, 30, 60, 80), 0.75), found(1, (5, 6, 7, 8))))
    assert root.get("viewBox") == "0 0 3000 100"
    first, missed = root.iter("{http://www.w3.org/2000/svg}rect")
    assert (first.get("data-class"), first.get("data-score"), first.get("x"), first.get("width")) == (
        ("clefG", "0.750", "20.0", "40.0")
    )
    assert (missed.get("data-class"), missed.get("stroke")) == ("missed: stem", RED)
    assert "<rect" not in boxes_figure(page, found(3, (20, 30, 60, 80)))


def test_colours_of_low_strength_are_pale_and_colours_of_classes_differ() -> None:
    assert min(class_colour(5, 0.5)) > min(class_colour(5, 1.0))
    assert len({class_colour(label) for label in range(1, 143)}) > 130


def test_sections_list_pages_classes_and_skipped_files() -> None:
    rows = [("page", "symbols"), *((f"p{n}", "1") for n in range(MAX_ROWS + 5))]
    sections = run_sections(rows, Counter({"stem": 3, "clefG": 1}), [("p0", "<svg/>")], [("bad.png", "corrupt")])
    assert [section.title for section in sections] == ["Pages", "Skipped", "Detections", "Classes"]
    assert f"{MAX_ROWS + 5} pages, 4 symbols of 2 classes." in sections[0].lead
    assert len(sections[0].wide[0].table) == MAX_ROWS + 1
    assert sections[3].wide[0].table[1] == ("stem", "3")
    assert [s.title for s in run_sections([("page",), ("a",)], Counter(), [], [])] == ["Pages"]


def test_the_picture_of_a_figure_has_a_maximum_width_and_at_least_one_row() -> None:
    root = ElementTree.fromstring(boxes_figure(np.zeros((3, 5000), dtype=np.uint8), found(2, (20, 0, 60, 2))))
    (image,) = root.iter("{http://www.w3.org/2000/svg}image")
    with Image.open(io.BytesIO(base64.b64decode(str(image.get("href")).partition(",")[2]))) as picture:
        assert picture.size == (1200, 1)
