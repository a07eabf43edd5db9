import base64
import re

import cv2
import numpy as np

from entourage.demo.music import annotated_page_figure, demo_page, engrave_section


def test_two_pages_in_two_fonts_with_complete_noteheads() -> None:
    section = engrave_section()
    first, second, table = section.wide
    assert "Leipzig" in first.title
    assert "Petaluma" in second.title
    for row in table.table[1:]:
        complete, total = row[-1].split(" of ")
        assert complete == total != "0"


def test_the_figure_is_the_page_with_coloured_annotations() -> None:
    page = demo_page(1, "Leipzig")
    data = re.search(r"base64,([^\"]+)", annotated_page_figure(page))
    assert data is not None
    image = cv2.imdecode(np.frombuffer(base64.b64decode(data[1]), dtype=np.uint8), cv2.IMREAD_COLOR)
    assert image.shape[:2] == page.image.shape
    assert (image.max(axis=2) - image.min(axis=2)).max() > 100  # coloured, while the page is grey
