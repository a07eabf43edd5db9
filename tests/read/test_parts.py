from fractions import Fraction

from entourage.read.parts import SystemMusic, drop_repeated_signatures, join_parts
from entourage.read.score import Clef, Measure


def system(*sizes: int, measures: int = 2) -> SystemMusic:
    """Return a system whose measures carry the number of their group."""
    parts = [[Measure(0, Fraction(4), key=group) for _ in range(measures)] for group in range(len(sizes))]
    return SystemMusic(list(sizes), parts)


def test_no_systems_give_no_parts() -> None:
    assert join_parts([]) == []


def test_measures_are_numbered_through_all_systems() -> None:
    parts = join_parts([system(1, 2), system(1, 2, measures=3)])
    assert [part.n_staves for part in parts] == [1, 2]
    assert [[measure.number for measure in part.measures] for part in parts] == [[1, 2, 3, 4, 5]] * 2


def test_a_voice_that_is_left_out_rests() -> None:
    voice, piano = join_parts([system(1, 2), system(2)])
    assert [measure.key for measure in piano.measures] == [1, 1, 0, 0]
    assert len(voice.measures) == 4
    assert all(not measure.chords for measure in voice.measures[2:])


def test_parts_are_matched_from_the_bottom() -> None:
    parts = join_parts([system(1, 1, 2), system(1, 2)])
    assert [measure.key for measure in parts[1].measures[2:]] == [0, 0]
    assert [measure.key for measure in parts[2].measures[2:]] == [1, 1]


def test_signatures_that_are_valid_already_are_removed() -> None:
    treble, bass, start = Clef("G", 2), Clef("F", 4), Fraction(0)
    first = Measure(1, Fraction(4), clefs=[(1, start, treble), (2, start, bass)], key=2, meter=(4, 4, "common"))
    change = Measure(2, Fraction(4), clefs=[(1, Fraction(2), bass)])
    page = Measure(3, Fraction(4), clefs=[(1, start, bass), (2, start, bass)], key=2, meter=(2, 2, "hidden"))
    new = Measure(4, Fraction(3), clefs=[(1, start, treble)], key=0, meter=(3, 4, ""))
    drop_repeated_signatures([first, change, page, new])
    assert (first.clefs, first.key, first.meter) == ([(1, start, treble), (2, start, bass)], 2, (4, 4, "common"))
    assert change.clefs == [(1, Fraction(2), bass)]
    assert (page.clefs, page.key, page.meter) == ([], None, None)
    assert (new.clefs, new.key, new.meter) == ([(1, start, treble)], 0, (3, 4, ""))
