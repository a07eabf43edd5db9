import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.engrave.conftest import build_score, direction, notations, note

from entourage.engrave.dataset import pool
from entourage.engrave.engines import lilypond as lilypond_module
from entourage.engrave.engines.lilypond import LilypondEngraver, escape_text
from entourage.engrave.options import PageOptions
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import Score, parse_score, read_score
from entourage.extras import MissingExtraError


def test_a_missing_lilypond_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lilypond", None)
    with pytest.raises(MissingExtraError, match=r"lilypond .*; expected: pip install 'entourage\[lilypond\]'"):
        LilypondEngraver(PageOptions())


def test_a_score_is_engraved_with_its_annotations(score_path: Path) -> None:
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
    assert [(s.measure, s.system, s.staff, s.voice) for s in heads] == [(1, 1, 1, 1)] * 3 + [(2, 1, 1, 1)]
    lines = sorted((s.measure, s.label) for s in page.symbols if s.label.startswith("barline"))
    assert lines == [(1, "barlineSingle"), (2, "barlineSingle")]
    labels = {s.label for s in page.symbols}
    assert {"clefG", "keySharp", "accidentalFlat", "flag8thDown", "augmentationDot", "restQuarter", "staff"} <= labels
    staff = next(box for s, box in zip(page.symbols, page.boxes, strict=True) if s.label == "staff")
    assert abs(staff[3] - staff[1] - 80) <= 3


def test_other_notations_than_musicxml_raise_an_error() -> None:
    pytest.importorskip("lilypond")
    with pytest.raises(ValueError, match="a: is abc; expected MusicXML"):
        next(LilypondEngraver(PageOptions()).engrave(Score("a", "X:1", "abc")))


def test_texts_of_a_score_are_not_run_as_commands(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    command = f'}}#(system "touch {mark}"){{'
    escaped = command.replace('"', "&quot;")
    words = f"<words font-family='{escaped}'>{escaped}</words>"
    words += f"<dynamics><other-dynamics>{escaped}</other-dynamics></dynamics>"
    key = f"<attributes><key><fifths>0</fifths><mode>{escaped}</mode></key></attributes>"
    finger = notations(f"<technical><fingering>{escaped}</fingering></technical>")
    score = parse_score(build_score(key + direction(words) + note("A4", 32, "whole", finger)), "evil")
    safe = escape_text(score.text)
    assert not set("#$\\{}%") & set(safe)
    assert "font-family" not in safe
    pytest.importorskip("lilypond")
    with suppress(ValueError):  # LilyPond may reject it
        list(LilypondEngraver(PageOptions()).engrave(score))
    assert not mark.exists()


def test_timeouts_of_lilypond_are_shorter_than_that_of_a_task() -> None:
    assert sum(lilypond_module._TIMEOUTS.values()) <= 0.8 * pool._TASK_TIMEOUT


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_timeout_kills_the_program_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "lilypond"
    program.write_text("#!/bin/sh\nsleep 60 &\necho $! > child\nwait\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "lilypond", SimpleNamespace(executable=lambda name: tmp_path / name))
    monkeypatch.setitem(lilypond_module._TIMEOUTS, "lilypond", 1.0)
    engraver = LilypondEngraver(PageOptions())
    with pytest.raises(ValueError, match="s: lilypond took longer than 1 s"):
        engraver._run("lilypond", [], tmp_path, Score("s", "", "musicxml"))
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    for _ in range(100):  # the process ends asynchronously
        if not child.exists() or child.read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("the child is still running")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /bin/sh")
def test_the_error_of_a_program_contains_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "musicxml2ly"
    program.write_text("#!/bin/sh\necho first >&2\necho no such part >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "lilypond", SimpleNamespace(executable=lambda name: tmp_path / name))
    with pytest.raises(ValueError, match="s: musicxml2ly failed: no such part"):
        LilypondEngraver(PageOptions())._run("musicxml2ly", [], tmp_path, Score("s", "", "musicxml"))
