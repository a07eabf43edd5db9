from pathlib import Path

import pytest

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


@pytest.fixture
def musicxml() -> str:
    return SCORE


@pytest.fixture
def score_path(tmp_path: Path) -> Path:
    path = tmp_path / "etude.musicxml"
    path.write_text(SCORE, encoding="utf-8")
    return path
