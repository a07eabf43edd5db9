from __future__ import annotations

import itertools

from tests.serve.scores.conftest import LEFT, WIDTH, piano

from entourage.read.score import Score
from entourage.serve.scores.playback import playback_of


def test_tones_and_measures_are_in_order_of_time() -> None:
    found = playback_of(piano())
    assert found["measures"] == [[4.0 * m, 4.0 * m + 4, m] for m in range(4)]
    assert found["tones"][0] == [0.0, 1.0, 67, 80, 0, 1]
    assert next(tone[:3] for tone in found["tones"] if tone[5] == 2) == [0.0, 4.0, 55]
    assert found["tones"] == sorted(found["tones"])
    assert len(found["tones"]) == 17


def test_the_cursor_moves_to_the_right() -> None:
    places = playback_of(piano())["places"]
    for index, row in enumerate(places):
        assert row[0][0] == 0.0
        assert row[-1] == [4.0, LEFT + WIDTH * (index + 1)]
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(row))
    assert [place[0] for place in places[0]] == [0.0, 1.0, 2.0, 4.0]


def test_repeats_are_played_twice() -> None:
    score = piano()
    score.parts[0].measures[1].repeat_end = True
    found = playback_of(score)
    assert [row[2] for row in found["measures"]] == [0, 1, 0, 1, 2, 3]
    assert found["measures"][-1][1] == 24.0


def test_ties_are_one_tone() -> None:
    score = piano()
    third, fourth = score.parts[0].measures[2], score.parts[0].measures[3]
    third.chords[1].notes[0].tied_to = fourth.chords[0].notes[0].tied_from = True
    tones = playback_of(score)["tones"]
    assert [10.0, 16.0, 78] in [tone[:3] for tone in tones]


def test_a_score_without_parts_is_silent() -> None:
    assert playback_of(Score([])) == {"tones": [], "measures": [], "places": []}
