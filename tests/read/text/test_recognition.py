"""Tests of the recognition of text."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from entourage.extras import missing_packages
from entourage.read.text import recognition
from entourage.read.text.recognition import TextRecognizer


def test_text_of_a_page() -> None:
    if missing_packages("text"):
        pytest.skip("requires the extra [text]")
    page = Image.new("L", (700, 200), 255)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Serif"), 22)
    draw = ImageDraw.Draw(page)
    draw.text((40, 30), "Frühling läßt sein", font=font, fill=0)
    draw.text((300, 120), "Andante", font=font, fill=0)
    lines = TextRecognizer().read(np.asarray(page))
    assert [line.text for line in lines] == ["Frühling läßt sein", "Andante"]
    first, _, last = lines[0].words
    assert 30 < first.x0 < 50
    assert first.x1 < last.x0 < last.x1 < 320
    assert abs(lines[1].y - 133) < 10
    assert lines[1].height < 50


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recognition.EXTRAS, "text", ("no_such_package",))
    with pytest.raises(ImportError, match="no_such_package"):
        TextRecognizer()


def test_words_are_divided_at_spaces_and_gaps() -> None:
    ink = np.zeros((40, 200), dtype=np.bool_)
    characters = [(c, (10.0 * k, 5.0, 10.0 * k + 8.0, 35.0)) for k, c in enumerate("imMai")]
    for x in (0, 10, 30, 40):
        ink[10:30, x : x + 8] = True
    ink[10:30, 26:29] = True  # the gap between "m" and "M" is from 19 to 26
    words = recognition._to_words("imMai", (0.0, 5.0, 50.0, 35.0), characters, ink)
    assert [(word.text, word.x0, word.x1) for word in words] == [("im", 0.0, 18.0), ("Mai", 20.0, 48.0)]


def test_dashes_and_apostrophes_are_unified_and_foreign_signs_left_out() -> None:
    ink = np.ones((40, 200), dtype=np.bool_)
    words = recognition._to_words("ich's – 井", (0.0, 0.0, 90.0, 30.0), [], ink)
    assert [word.text for word in words] == ["ich’s", "-"]
