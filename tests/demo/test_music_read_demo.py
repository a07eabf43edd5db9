from __future__ import annotations

from entourage.demo.music import read_section
from entourage.read.reader import ScoreReader


def test_the_section_compares_what_was_read_with_the_score() -> None:
    section = read_section(ScoreReader.load(device="cpu"))
    page, engraving, table = section.wide
    assert page.figure.startswith("<svg")
    header, upright, upside_down = table.table
    assert header[1:4] == ("notes of the score", "notes read", "right")
    assert upside_down[1:] == upright[1:]
    truth, read, right = map(int, upright[1:4])
    assert abs(read - truth) <= 2
    assert right >= 0.8 * truth
    n_measures = int(upright[4].split(" of ")[1])
    assert engraving.figure.count('class="measure"') == n_measures > 10
