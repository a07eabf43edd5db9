from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entourage.engrave.dataset import pipeline
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont, PageOptions
from entourage.engrave.render.page import Page
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import read_score

SCORE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE score-partwise PUBLIC "-//Recordare//DTD MusicXML 4.0 Partwise//EN" "http://www.musicxml.org/dtds/partwise.dtd">
<score-partwise version="4.0"><work><work-title>Études</work-title></work>
<identification><creator type="composer">A. Nonymous</creator></identification>
<part-list><score-part id="P1"><part-name>Piano</part-name></score-part></part-list>
<part id="P1"><measure number="1"><attributes><divisions>2</divisions><key><fifths>1</fifths></key>
<time><beats>4</beats><beat-type>4</beat-type></time><clef><sign>G</sign><line>2</line></clef></attributes>
<note><pitch><step>G</step><octave>4</octave></pitch><duration>2</duration><type>quarter</type></note>
<note><pitch><step>B</step><alter>-1</alter><octave>4</octave></pitch><duration>1</duration><type>eighth</type>
<accidental>flat</accidental></note>
<note><pitch><step>F</step><alter>1</alter><octave>5</octave></pitch><duration>3</duration><type>quarter</type><dot/></note>
<note><rest/><duration>2</duration><type>quarter</type></note></measure>
<measure number="2"><note><pitch><step>C</step><octave>4</octave></pitch><duration>8</duration><type>whole</type></note>
</measure></part></score-partwise>
"""


def run_in_process(options: EngraveOptions, tasks: list[EngraveTask]) -> Iterator[Outcome]:
    """Run tasks like `run_tasks`, but in this process, so that monkeypatches apply."""
    yield from map(Worker(options).run, tasks)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "run_tasks", run_in_process)


@pytest.fixture
def musicxml() -> str:
    return SCORE


@pytest.fixture
def score_path(tmp_path: Path) -> Path:
    path = tmp_path / "etude.musicxml"
    path.write_text(SCORE, encoding="utf-8")
    return path


def build_score(*measures: str, divisions: int = 8, part: str = "Music") -> str:
    """Return a MusicXML score of one part; its first measure has a treble clef and common time."""
    start = (
        f"<attributes><divisions>{divisions}</divisions><time symbol='common'><beats>4</beats><beat-type>4</beat-type>"
        "</time><clef><sign>G</sign><line>2</line></clef></attributes>"
    )
    bodies = "".join(f"<measure number='{i}'>{start * (i == 1)}{m}</measure>" for i, m in enumerate(measures, start=1))
    parts = f"<part-list><score-part id='P1'><part-name>{part}</part-name></score-part></part-list>"
    return f"<score-partwise version='4.0'>{parts}<part id='P1'>{bodies}</part></score-partwise>"


def note(pitch: str, duration: int, kind: str, extra: str = "", before: str = "") -> str:
    """Return a note such as note("C5", 8, "quarter"); `before` is inserted before the pitch, `extra` after the type."""
    length = f"<duration>{duration}</duration>" if duration else ""
    where = f"<pitch><step>{pitch[0]}</step><octave>{pitch[-1]}</octave></pitch>"
    return f"<note>{before}{where}{length}<type>{kind}</type>{extra}</note>"


def notations(inside: str) -> str:
    return f"<notations>{inside}</notations>"


def direction(inside: str) -> str:
    return f"<direction placement='below'><direction-type>{inside}</direction-type></direction>"


@pytest.fixture
def songs(tmp_path: Path, musicxml: str) -> Path:
    folder = tmp_path / "songs"
    folder.mkdir()
    for i, title in enumerate(("One", "Two", "Three")):
        (folder / f"{title}.xml").write_text(musicxml.replace("Études", title).replace("<fifths>1", f"<fifths>{i}"))
    return folder


@pytest.fixture(scope="session")
def engraver() -> VerovioEngraver:
    return VerovioEngraver(PageOptions(), MusicFont("Leipzig"))


@pytest.fixture(scope="session")
def engrave(engraver: VerovioEngraver, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Page]:
    """Return a function that engraves the first page of a MusicXML text."""
    folder = tmp_path_factory.mktemp("scores")

    def run(text: str) -> Page:
        path = folder / "score.xml"
        path.write_text(text, encoding="utf-8")
        return next(engraver.engrave(read_score(ScoreFile("score", path))))

    return run
