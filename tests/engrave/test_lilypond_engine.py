import sys
from pathlib import Path

import pytest

from entourage.engrave.archives import ScoreFile
from entourage.engrave.lilypond_engine import LilypondEngraver
from entourage.engrave.options import PageOptions
from entourage.engrave.scores import Score, read_score


def test_without_lilypond_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lilypond", None)
    with pytest.raises(ValueError, match="LilyPond is not installed"):
        LilypondEngraver(PageOptions())


def test_a_score_is_engraved_with_the_same_truth(score_path: Path) -> None:
    pytest.importorskip("lilypond")
    page = next(LilypondEngraver(PageOptions()).engrave(read_score(ScoreFile("s", score_path))))
    assert page.image.shape == (2668, 1894)
    heads = sorted((s for s in page.symbols if s.label.startswith("notehead")), key=lambda s: s.onset or 0)
    assert [(s.onset, s.duration, s.pitch, s.element) for s in heads] == [
        (0, 1, "G4", "p1m1n1"),
        (1, 0.5, "Bb4", "p1m1n2"),
        (1.5, 1.5, "F#5", "p1m1n3"),
        (4, 4, "C4", "p1m2n1"),
    ]
    labels = {s.label for s in page.symbols}
    assert {"clefG", "keySharp", "accidentalFlat", "flag8thDown", "augmentationDot", "restQuarter", "staff"} <= labels
    staff = next(box for s, box in zip(page.symbols, page.boxes, strict=True) if s.label == "staff")
    assert abs(staff[3] - staff[1] - 80) <= 3


def test_only_musicxml_is_taken() -> None:
    pytest.importorskip("lilypond")
    with pytest.raises(ValueError, match="LilyPond takes MusicXML only"):
        next(LilypondEngraver(PageOptions()).engrave(Score("a", "X:1", "abc")))
