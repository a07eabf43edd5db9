from collections import Counter
from pathlib import Path

import pytest
from benchmarks.omr_ned import PageScore, align, count_right, find_pages, pool_scores

from benchmarks import omr_ned


def test_figures_of_a_page() -> None:
    score = PageScore(edits=5, n_truth=60, n_found=40, notes_right=8, notes_truth=10, notes_found=6)
    assert score.omr_ned == pytest.approx(5.0)
    assert score.note_f1 == pytest.approx(100.0)
    assert PageScore().omr_ned == 0.0
    assert PageScore().note_f1 == 0.0


def test_pooled_pages_are_sums_and_not_means() -> None:
    pages = [PageScore(edits=1, n_truth=10, n_found=10), PageScore(edits=60, n_truth=40, n_found=40, problem="empty")]
    total = pool_scores(pages)
    assert total.omr_ned == pytest.approx(100 * 61 / 100)
    assert total.problem == "1 without a usable prediction"


def test_align_finds_the_best_monotone_matching() -> None:
    gains = {(0, 0): 1, (1, 1): 2, (0, 1): 5, (1, 0): 5}
    total, pairs = align(2, 2, lambda i, j: gains[i, j])
    assert total == 5  # both crossing pairs at once are not monotone
    assert pairs in ([(0, 1)], [(1, 0)])
    assert align(0, 3, lambda i, j: 1) == (0, [])


def test_a_lost_measure_costs_its_own_notes_only() -> None:
    measures = [Counter({(60 + k, 0.0, 1.0): 1}) for k in range(4)]
    assert count_right([measures], [measures[:1] + measures[2:]]) == 3


def test_a_note_needs_pitch_onset_and_duration() -> None:
    truth = [[Counter({(60, 0.0, 1.0): 2})]]
    assert count_right(truth, [[Counter({(60, 0.0, 1.0): 1})]]) == 1
    for wrong in ((61, 0.0, 1.0), (60, 0.5, 1.0), (60, 0.0, 0.5)):
        assert count_right(truth, [[Counter({wrong: 1})]]) == 0


def test_staves_are_aligned_by_their_pitches_if_one_is_missing() -> None:
    upper, lower = [Counter({(72, 0.0, 1.0): 1})], [Counter({(48, 0.0, 1.0): 1})]
    assert count_right([upper, lower], [lower]) == 1


def test_pages_are_found_by_stem(tmp_path: Path) -> None:
    for name in ("b.musicxml", "a.mxl", "notes.txt"):
        (tmp_path / name).touch()
    assert list(find_pages(tmp_path)) == ["a", "b"]


def test_scores_of_files(tmp_path: Path) -> None:
    pytest.importorskip("musicdiff")
    text = """<score-partwise version="4.0"><part-list><score-part id="P1"><part-name>A</part-name></score-part>
        </part-list><part id="P1"><measure number="1"><attributes><divisions>1</divisions><time><beats>4</beats>
        <beat-type>4</beat-type></time><clef><sign>G</sign><line>2</line></clef></attributes>
        {notes}</measure></part></score-partwise>"""
    note = "<note><pitch><step>{}</step><octave>4</octave></pitch><duration>1</duration><type>quarter</type></note>"
    truth, found = tmp_path / "truth.musicxml", tmp_path / "found.musicxml"
    truth.write_text(text.format(notes="".join(note.format(step) for step in "CDEF")))
    found.write_text(text.format(notes="".join(note.format(step) for step in "CDEG")))
    same, other, missing = (omr_ned.compare(truth, path) for path in (truth, found, None))
    assert (same.edits, same.omr_ned, same.note_f1, same.problem) == (0, 0.0, 100.0, "")
    assert 0 < other.omr_ned < 50
    assert other.note_f1 == pytest.approx(75.0)
    assert (missing.omr_ned, missing.note_f1, missing.problem) == (100.0, 0.0, "no prediction")
