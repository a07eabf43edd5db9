import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.engrave.conftest import build_score, direction, notations, note

from entourage.engrave.archives import ScoreFile
from entourage.engrave.lilypond_engine import LilypondEngraver, disarm
from entourage.engrave.options import PageOptions
from entourage.engrave.scores import Score, parse_score, read_score


def test_without_lilypond_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lilypond", None)
    with pytest.raises(ValueError, match="LilyPond is not installed"):
        LilypondEngraver(PageOptions())


def test_a_score_is_engraved_with_the_same_truth(score_path: Path) -> None:
    pytest.importorskip("lilypond")
    page = next(LilypondEngraver(PageOptions()).engrave(read_score(ScoreFile("s", score_path))))
    assert page.image.shape == (2668, 1894)
    assert page.complete
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


def test_words_of_a_score_are_never_commands(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = f'}}#(system "touch {mark}"){{'
    escaped = command.replace('"', "&quot;")
    words = f"<words font-family='{escaped}'>{escaped}</words>"
    words += f"<dynamics><other-dynamics>{escaped}</other-dynamics></dynamics>"
    key = f"<attributes><key><fifths>0</fifths><mode>{escaped}</mode></key></attributes>"
    finger = notations(f"<technical><fingering>{escaped}</fingering></technical>")
    score = parse_score(build_score(key + direction(words) + note("A4", 32, "whole", finger)), "evil")
    safe = disarm(score.text)
    assert not set("#$\\{}%") & set(safe)
    assert "font-family" not in safe
    pytest.importorskip("lilypond")
    with suppress(ValueError):  # LilyPond may well refuse it
        list(LilypondEngraver(PageOptions()).engrave(score))
    assert not mark.exists()
