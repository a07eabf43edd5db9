from fractions import Fraction

import numpy as np
import pytest
from lxml import etree

from entourage.engrave.scores.composer import Bar, Figures
from entourage.engrave.scores.musicxml_writer import DIVISIONS


def figures(base_clef: str = "G2", seed: int = 0) -> Figures:
    return Figures(np.random.default_rng(seed), base_clef)


def elements(bar: Bar | str) -> etree._Element:
    return etree.fromstring(f"<m>{bar if isinstance(bar, str) else bar.left + bar.content + bar.right}</m>")


def total_duration(root: etree._Element) -> Fraction:
    notes = [n for n in root.iter("note") if n.find("chord") is None]
    return Fraction(sum(int(n.findtext("duration") or 0) for n in notes), DIVISIONS)


@pytest.mark.parametrize("base_clef", ["G2", "F4", "C3", "C4", "P"])
def test_figures_fill_their_measures(base_clef: str) -> None:
    bars = [bar for figure in figures(base_clef).all_figures() for bar in figure]
    roots = [elements(bar) for bar in bars]
    assert [total_duration(root) for root in roots] == [bar.length for bar in bars]
    tags = {element.tag for root in roots for element in root.iter()}
    assert {"tremolo", "arpeggiate", "grace", "segno", "coda", "pedal", "octave-shift", "wedge", "repeat"} <= tags
    assert {"multiple-rest", "fingering", "fermata", "caesura", "tied", "slur", "tuplet"} <= tags
    assert {n.text for root in roots for n in root.iter("actual-notes")} == {
        str(n) for n in (2, 3, 4, 5, 6, 7, 8, 9, 12)
    }


def test_measure_contents_fill_a_measure_at_any_middle_line() -> None:
    writer = figures()
    for content in [*writer.flags(), *writer.tuplets(), writer.seconds, writer.beamed]:
        root = elements(content(22))  # D3, middle line in the bass clef
        assert total_duration(root) == 4
        steps = [7 * int(p.findtext("octave")) + "CDEFGAB".index(p.findtext("step")) for p in root.iter("pitch")]
        assert all(abs(step - 22) <= 5 for step in steps)


def test_clefs_return_to_the_base_clef() -> None:
    writer = figures("C4")
    bars = writer.clefs(lambda before="", middle=0: Bar(before))
    signs = [(c.findtext("sign"), c.findtext("line")) for bar in bars for c in elements(bar).iter("clef")]
    assert len(signs) == 8
    assert signs[-1] == ("C", "4")


def test_random_step_is_on_a_line_or_in_a_space() -> None:
    writer = figures()
    assert {(writer.random_step(line=True) - writer.middle) % 2 for _ in range(30)} == {0}
    assert {(writer.random_step(line=False) - writer.middle) % 2 for _ in range(30)} == {1}
    assert {abs(writer.random_step(middle=10) - 10) <= 4 for _ in range(30)} == {True}


def test_figures_are_deterministic() -> None:
    assert list(figures().all_figures()) == list(figures().all_figures())
    assert list(figures().all_figures()) != list(figures(seed=1).all_figures())


def test_every_kind_of_bar_line_is_written() -> None:
    bars = figures().barlines()
    text = "".join(bar.left + bar.right for bar in bars)
    for part in ("light-light", "dashed", "dotted", "forward", "backward", "number='1' type='start'", "number='2'"):
        assert part in text
    assert all("<inverted-mordent/>" in bar.content for bar in bars)
