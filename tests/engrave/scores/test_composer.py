from collections import Counter
from fractions import Fraction

import pytest
from lxml import etree

from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import FONTS, MusicFont, PageOptions
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.musicxml_writer import DIVISIONS
from entourage.engrave.scores.parsing import parse_score
from entourage.symbols import CLASSES, EXTENDED_IDS, FULL_IDS, V1_IDS


def count_classes(balanced: bool, indices: range) -> tuple[Counter[str], Counter[str], list[int]]:
    labels: Counter[str] = Counter()
    v1: Counter[str] = Counter()
    unlabelled = []
    for index in indices:
        engraver = VerovioEngraver(PageOptions(interline=10), MusicFont(FONTS[index % 5]))
        for page in engraver.engrave(parse_score(compose(0, index, balanced=balanced), "c")):
            labels.update(s.label for s in page.symbols if s.label)
            v1.update(s.v1 for s in page.symbols if s.v1)
            unlabelled += page.unlabelled
    return labels, v1, unlabelled


@pytest.fixture(scope="module")
def balanced() -> tuple[Counter[str], Counter[str], list[int]]:
    return count_classes(True, range(8))


def test_balanced_scores_contain_every_class(balanced: tuple[Counter[str], Counter[str], list[int]]) -> None:
    labels, v1, unlabelled = balanced
    assert [name for name in FULL_IDS if not labels[name]] == []
    assert [name for name in V1_IDS if not v1[name]] == []
    assert unlabelled == []


def test_class_frequencies_differ_by_a_factor_of_twenty_at_most(
    balanced: tuple[Counter[str], Counter[str], list[int]],
) -> None:
    labels, v1, _ = balanced
    names = [name for name in CLASSES if name in EXTENDED_IDS or name not in FULL_IDS]  # without bar lines
    counts = [labels[name] if name in EXTENDED_IDS else v1[name] for name in names]
    assert min(counts) * 20 >= max(counts)


@pytest.mark.parametrize("balanced_mode", [True, False])
@pytest.mark.parametrize("index", [0, 3, 4])
def test_durations_fill_each_measure(index: int, balanced_mode: bool) -> None:
    """Durations in each measure of the upper staff add up to its time signature."""
    length = Fraction(4)
    for measure in etree.fromstring(compose(7, index, balanced=balanced_mode)).iter("measure"):
        for time in measure.iter("time"):
            length = Fraction(4 * int(time.findtext("beats")), int(time.findtext("beat-type")))
        notes = [n for n in measure.iter("note") if n.find("chord") is None and n.findtext("staff") != "2"]
        total = sum(int(n.findtext("duration") or 0) for n in notes)
        assert Fraction(total, DIVISIONS) == length, etree.tostring(measure)


def test_compose_is_deterministic() -> None:
    assert compose(1, 2, balanced=True) == compose(1, 2, balanced=True)
    assert len({compose(1, 2), compose(1, 3), compose(2, 2), compose(1, 2, balanced=True)}) == 4


def test_unbalanced_scores_are_mostly_melody() -> None:
    labels, _, _ = count_classes(False, range(1))
    heads = sum(n for name, n in labels.items() if name.startswith("noteheadBlack"))
    assert heads > 4 * max(n for name, n in labels.items() if name.startswith(("artic", "ornament", "tremolo")))
