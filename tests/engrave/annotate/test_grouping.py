from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tests.engrave.conftest import build_score, direction, note

from entourage.engrave.annotate.grouping import LETTERS, combine_dynamics, combine_graces, combine_times
from entourage.engrave.render.marks import Group, Mark, Symbol
from entourage.engrave.render.page import Page

Engrave = Callable[[str], Page]


def labels(page: Page) -> Counter[str]:
    return Counter(symbol.label for symbol in page.symbols)


def v1(page: Page) -> Counter[str]:
    return Counter(symbol.v1 for symbol in page.symbols)


def test_grace_notes_consist_of_small_symbols_and_are_one_symbol(engrave: Engrave) -> None:
    slashed = note("A4", 0, "eighth", "<accidental>flat</accidental>", before="<grace slash='yes'/>")
    plain = note("F5", 0, "eighth", "<stem>down</stem>", before="<grace/>")
    page = engrave(build_score(slashed + note("A4", 16, "half") + plain + note("E5", 16, "half")))
    found = labels(page)
    assert found["noteheadBlackInSpaceSmall"] == 1  # A4
    assert found["noteheadBlackOnLineSmall"] == 1  # F5
    assert (found["accidentalFlatSmall"], found["flag8thUpSmall"], found["flag8thDownSmall"]) == (1, 1, 1)
    assert (found["graceNoteAcciaccaturaStemUp"], found["graceNoteAppoggiaturaStemDown"]) == (1, 1)
    box = {s.label: b for s, b in zip(page.symbols, page.boxes, strict=True)}
    head, whole = box["noteheadBlackInSpaceSmall"], box["graceNoteAcciaccaturaStemUp"]
    assert whole[0] <= head[0]
    assert whole[1] < head[1] - 20  # stem and stroke
    assert whole[3] >= head[3]


def test_dynamics_are_letters_and_in_v1_combined_symbols(engrave: Engrave) -> None:
    words = "".join(
        direction(f"<dynamics><{w}/></dynamics>") + note("A4", 8, "quarter") for w in ("pp", "sfz", "mf", "fp")
    )
    page = engrave(build_score(words))
    assert labels(page)["dynamicP"] == 3
    assert labels(page)["dynamicF"] == 3
    first = v1(page)
    assert [first[f"dynamic{n}"] for n in ("PP", "Sforzato", "MF", "FortePiano")] == [1] * 4
    assert first["dynamicPiano"] == first["dynamicForte"] == 0


def test_twelve_is_one_symbol_in_v1_only(engrave: Engrave) -> None:
    time = "<attributes><time><beats>12</beats><beat-type>16</beat-type></time></attributes>"
    page = engrave(build_score(note("A4", 32, "whole"), time + note("A4", 24, "half", "<dot/>")))
    assert (labels(page)["timeSig1"], labels(page)["timeSig2"], labels(page)["timeSig6"]) == (2, 1, 1)
    assert (v1(page)["timeSig12"], v1(page)["timeSig16"], v1(page)["timeSig1"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("word", "names"),
    [("ffp", ["FF", "Piano"]), ("sffz", ["Sforzando1", "Forte"]), ("pppppp", ["PPPPP", "Piano"]), ("z", [])],
)
def test_dynamics_without_a_v1_class_are_split(word: str, names: list[str]) -> None:
    group, codes = Group(("dynam",)), {letter: code for code, letter in LETTERS.items()}
    marks = [Mark("glyph", np.empty((0, 4)), group, codes[letter]) for letter in word]
    symbols = [Symbol(f"dynamic{letter.upper()}", "", [i], group) for i, letter in enumerate(word)]
    found = combine_dynamics(symbols, marks)
    assert [symbol.v1.removeprefix("dynamic") for symbol in found] == names
    assert [i for symbol in found for i in symbol.marks] == list(range(len(word.rstrip("z"))))


def test_digits_of_two_rows_or_two_signatures_are_not_combined() -> None:
    here, there = Group(("meterSig",)), Group(("meterSig",))
    marks = [Mark("glyph", np.empty((0, 4)), here, y=y) for y in (0, 40, 40, 40)]
    symbols = [
        Symbol(f"timeSig{d}", f"timeSig{d}", [i], g)
        for i, (d, g) in enumerate(zip("1216", (here, here, there, there), strict=True))
    ]
    found = combine_times(symbols, marks)
    assert [(s.v1, s.marks) for s in found] == [("timeSig16", [2, 3])]
    assert [s.v1 for s in symbols] == ["timeSig1", "timeSig2", "", ""]


def test_a_grace_note_under_a_beam_is_not_combined() -> None:
    owner = Group(("note",))
    beamed = [Mark("glyph", np.empty((0, 4)), Group(("notehead",), parent=owner), 0xE0A4)]
    assert combine_graces({owner: [0]}, beamed) == []
