from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from music21 import converter
from numpy.typing import NDArray
from PIL import Image
from tests.read.musicxml_schema import schema_errors
from tests.read.small import chord, measure, page_of, score_of

from entourage.data.media import UnreadableImageError
from entourage.detect import Detections
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.read.formats.musicxml import to_musicxml
from entourage.read.formats.score_json import read_score
from entourage.read.reader import PageReading, ScoreReader, Transcription, join_pages
from entourage.read.score import Clef


@pytest.fixture(scope="module")
def read_melody(reader: ScoreReader, melody_page: NDArray[np.uint8]) -> Transcription:
    return reader.read(melody_page)


def rows(score: Transcription) -> list[tuple[str, Fraction, Fraction]]:
    return [(str(note.pitch), note.onset, note.duration) for note in score.notes]


MELODY = [
    ("G4", Fraction(0), Fraction(1)),
    ("A4", Fraction(1), Fraction(1)),
    ("F#5", Fraction(2), Fraction(2)),
    ("C5", Fraction(4), Fraction(1, 2)),
    ("D5", Fraction(9, 2), Fraction(1, 2)),
    ("B4", Fraction(5), Fraction(1)),
]


def test_an_engraved_melody_is_read(read_melody: Transcription) -> None:
    assert rows(read_melody) == MELODY
    first, second = read_melody.measures
    assert (first.key, first.meter, first.clefs) == (1, (4, 4, ""), [(1, 0, Clef())])
    assert (second.right, second.problem) == ("light-heavy", "")
    assert [note.measure for note in read_melody.notes] == [1, 1, 1, 2, 2, 2]


def test_boxes_lie_on_the_ink_of_the_input(read_melody: Transcription, melody_page: NDArray[np.uint8]) -> None:
    for note in read_melody.notes:
        x0, y0, x1, y1 = (round(side) for side in note.box)
        assert 10 < x1 - x0 < 24
        inside = melody_page[y0 + 3 : y1 - 3, x0 + 3 : x1 - 3]
        assert (inside < 128).mean() > 0.4
    (box,) = read_melody.measures[0].boxes
    assert box[3] - box[1] == pytest.approx(4 * 14, abs=2)


def test_notes_refer_to_the_symbols_of_their_page(read_melody: Transcription) -> None:
    symbols = read_melody.symbols[0]
    heads = [note for _, _, one in read_melody.chords() for note in one.notes]
    assert all(note.symbol is not None and "notehead" in symbols.names[note.symbol] for note in heads)
    for note in heads:
        assert symbols.boxes[note.symbol].tolist() == pytest.approx(note.box, abs=0.01)
    (rest,) = [one for _, _, one in read_melody.chords() if one.is_rest]
    assert rest.symbol is not None
    assert symbols.names[rest.symbol] == "restHalf"


def test_all_formats_are_written(tmp_path: Path, read_melody: Transcription) -> None:
    read_melody.to_musicxml(tmp_path / "a.musicxml")
    read_melody.to_midi(tmp_path / "a.mid", tempo=90)
    read_melody.to_mei(tmp_path / "a.mei")
    read_melody.to_json(tmp_path / "a.json")
    assert schema_errors((tmp_path / "a.musicxml").read_text()) == []
    for name in ("a.musicxml", "a.mid"):
        parsed = converter.parse(tmp_path / name)
        assert [note.pitch.midi for note in parsed.flatten().notes] == [67, 69, 78, 72, 74, 71]
    assert (tmp_path / "a.mei").read_text().count("<note ") == 6
    assert to_musicxml(read_score(tmp_path / "a.json")) == to_musicxml(read_melody)


def test_a_copy_is_transposed(read_melody: Transcription) -> None:
    assert [str(note.pitch) for note in read_melody.transposed("M2").notes][:3] == ["A4", "B4", "G#5"]
    assert rows(read_melody) == MELODY
    with pytest.raises(ValueError, match=r"transpose: .*; expected semitones such as -3 or an interval"):
        read_melody.transposed("big")


@pytest.mark.parametrize("quarters", [1, 2])
def test_a_turned_page_gives_the_same_score(
    reader: ScoreReader, read_melody: Transcription, melody_page: NDArray[np.uint8], quarters: int
) -> None:
    turned = reader.read(np.ascontiguousarray(np.rot90(melody_page, quarters)))
    assert to_musicxml(turned) == to_musicxml(read_melody)
    assert turned.message == f"page: turned by {360 - 90 * quarters} degrees"
    assert turned.pages[0].turned == 360 - 90 * quarters
    x0, y0, x1, y1 = read_melody.notes[0].box
    height, width = melody_page.shape
    expected = (y0, width - x1, y1, width - x0) if quarters == 1 else (width - x1, height - y1, width - x0, height - y0)
    assert turned.notes[0].box == pytest.approx(expected)


def test_pages_are_joined_to_one_score(reader: ScoreReader, tmp_path: Path, melody_page: NDArray[np.uint8]) -> None:
    frames = [Image.fromarray(melody_page)] * 2
    frames[0].save(tmp_path / "two.tif", save_all=True, append_images=frames[1:])
    score = reader.read(tmp_path / "two.tif")
    assert [page.source for page in score.pages] == [f"{tmp_path / 'two.tif'}#{k}" for k in (1, 2)]
    assert [one.number for one in score.measures] == [1, 2, 3, 4]
    assert [one.page for one in score.measures] == [1, 1, 2, 2]
    assert [one.key for one in score.measures] == [1, None, None, None]  # not repeated on the second page
    assert [one.clefs != [] for one in score.measures] == [True, False, False, False]
    assert rows(score)[6:] == [(name, onset + 8, duration) for name, onset, duration in MELODY]
    assert [note.page for note in score.notes] == [1] * 6 + [2] * 6
    both = reader.read([melody_page, frames[1]])
    assert rows(both) == rows(score)


def test_a_key_is_cancelled_on_the_next_page(reader: ScoreReader, melody_page: NDArray[np.uint8]) -> None:
    plain = measure(1, [chord(0, "whole", "F4")], key=0, meter=(4, 4, ""), clefs=[(1, Fraction(0), Clef())])
    score = reader.read([melody_page, page_of(score_of(plain))])
    assert [one.key for one in score.measures] == [1, None, 0]
    assert str(score.notes[-1].pitch) == "F4"


def test_pages_without_music_say_why(reader: ScoreReader, tmp_path: Path) -> None:
    white = np.full((400, 600), 255, dtype=np.uint8)
    score = reader.read(white)
    assert (score.notes, score.measures, score.message) == ([], [], "page: no staves found")
    for write in (score.to_musicxml, score.to_midi, score.to_mei):
        with pytest.raises(ValueError, match=r"score: .*; expected pages with notes"):
            write(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    score.to_json(tmp_path / "a.json")
    assert read_score(tmp_path / "a.json").pages == score.pages


def test_a_page_that_cannot_be_opened_is_an_error(reader: ScoreReader, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImageError, match=r"a\.png: not an image"):
        reader.read(tmp_path / "a.png")


def test_no_pages_are_an_empty_score() -> None:
    score = join_pages([])
    assert (score.parts, score.pages, score.notes) == ([], [], [])


def test_the_number_of_notes_of_a_page(reader: ScoreReader, melody_page: NDArray[np.uint8]) -> None:
    reading = reader.read_page(melody_page, "melody.png")
    assert isinstance(reading, PageReading)
    assert (reading.n_notes, reading.info.source, reading.info.width) == (6, "melody.png", 1100)


def test_uncertain_symbols_have_a_message(
    reader: ScoreReader, melody_page: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    detect_raw = reader.detector.detect_raw

    def doubtful(prepared: PreparedPage) -> tuple[Detections, bool]:
        found, upside_down = detect_raw(prepared)
        return replace(found, scores=found.scores * 0.7), upside_down

    monkeypatch.setattr(reader.detector, "detect_raw", doubtful)
    score = reader.read(melody_page)
    assert score.message == "page: symbols are uncertain: handwriting and poor pictures are not read reliably"
    assert rows(score) == MELODY
