from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from entourage.detect.detections import Detections
from entourage.detect.report import MAX_ROWS, RED, class_colour, draw_detections, draw_missed, page_figure, run_sections

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


def test_missed_objects_have_red_frames_with_names_below() -> None:
    page = np.full((100, 120, 3), 255, dtype=np.uint8)
    drawn = draw_missed(page, found(1, (20, 30, 60, 60)))
    assert tuple(drawn[29, 40]) == RED
    assert (drawn[35:55, 25:55] == 255).all()
    assert (drawn[63:75] != 255).any()
    assert (page == 255).all()


def test_colours_of_low_strength_are_pale_and_colours_of_classes_differ() -> None:
    assert min(class_colour(5, 0.5)) > min(class_colour(5, 1.0))
    assert len({class_colour(label) for label in range(1, 143)}) > 130


def test_a_figure_has_a_maximum_width() -> None:
    svg = page_figure(np.zeros((50, 2000, 3), dtype=np.uint8), 400)
    assert svg.startswith("<svg")
    assert 'viewBox="0 0 400 10"' in svg


def test_sections_list_pages_classes_and_skipped_files() -> None:
    rows = [("page", "symbols"), *((f"p{n}", "1") for n in range(MAX_ROWS + 5))]
    sections = run_sections(rows, Counter({"stem": 3, "clefG": 1}), [("p0", "<svg/>")], [("bad.png", "corrupt")])
    assert [section.title for section in sections] == ["Pages", "Skipped", "Detections", "Classes"]
    assert f"{MAX_ROWS + 5} pages, 4 symbols of 2 classes." in sections[0].lead
    assert len(sections[0].wide[0].table) == MAX_ROWS + 1
    assert sections[3].wide[0].table[1] == ("stem", "3")
    assert [s.title for s in run_sections([("page",), ("a",)], Counter(), [], [])] == ["Pages"]


def test_a_figure_has_at_least_one_row() -> None:
    assert 'viewBox="0 0 400 1"' in page_figure(np.zeros((3, 5000, 3), dtype=np.uint8), 400)
