from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.read.small import chord, measure, score_of
from tests.serve.conftest import BASE, TOKEN

from entourage.io.files import write_json
from entourage.read.formats.score_json import score_to_dict
from entourage.read.score import STEPS, Chord, Clef, PageInfo, Score
from entourage.serve.app import build_app
from entourage.serve.guard import Guard
from entourage.serve.scores.bars import Music, music_from_values, to_values
from entourage.serve.scores.routes import score_routes
from entourage.serve.scores.session import OpenScore, ReadingSession

TOPS = (100.0, 200.0)  # top lines of the staves; lines are 10 pixels apart
LEFT, WIDTH = 100.0, 240.0  # of the first measure, in pixels
CLEFS = {1: Clef("G", 2), 2: Clef("F", 4)}
SIZE = (1200, 500)


def lower(onset: float, value: str, names: str = "", **fields: Any) -> Chord:
    return chord(onset, value, names, staff=2, voice=5, **fields)


def piano() -> Score:
    """Four measures of a piano in G major; the notes have places on a page, and symbols."""
    signs = {"key": 1, "meter": (4, 4, ""), "clefs": [(staff, Fraction(0), clef) for staff, clef in CLEFS.items()]}
    beamed = [chord(0, "eighth", "C5", stem="down", beams=["begin"])]
    beamed.append(chord(0.5, "eighth", "D5", stem="down", beams=["end"]))
    first = [chord(0, "quarter", "G4"), chord(1, "quarter", "B4"), chord(2, "half", "D5 F#5")]
    second = [*beamed, chord(1, "quarter", "B4"), chord(2, "quarter", "A4"), chord(3, "quarter")]
    third = [chord(0, "half", "G4"), chord(2, "half", "F#5")]
    rows = [
        measure(1, [*first, lower(0, "whole", "G3")], **signs),
        measure(2, [*second, lower(0, "half", "D3"), lower(2, "half", "F#3")]),
        measure(3, [*third, lower(0, "half", "E3"), lower(2, "half", "A3")], new_system=True),
        measure(4, [chord(0, "whole", "F#5"), lower(0, "half", "D3"), lower(2, "half")], right="light-heavy"),
    ]
    score = score_of(*rows, name="Piano", n_staves=2)
    score.pages = [PageInfo("", *SIZE, 10.0)]
    place(score)
    return score


def place(score: Score) -> None:
    """Give the notes and rests of a score positions and boxes, and number them as symbols."""
    number = 0
    for index, one in enumerate(score.parts[0].measures):
        x0 = LEFT + WIDTH * index
        one.boxes = [(x0, top, x0 + WIDTH, top + 40) for top in TOPS]
        for item in one.chords:
            x, top = x0 + 20 + 50 * float(item.onset), TOPS[item.staff - 1]
            for note in item.notes:
                note.position = 7 * note.pitch.octave + STEPS.index(note.pitch.step) - CLEFS[item.staff].diatonic(0)
                y = top + 20 - 5 * note.position
                note.box, note.symbol, number = (x, y - 5, x + 12, y + 5), number, number + 1
            boxes = [note.box for note in item.notes] or [(x, top + 10, x + 10, top + 30)]
            sides = np.array(boxes)
            item.box = (*sides[:, :2].min(axis=0).tolist(), *sides[:, 2:].max(axis=0).tolist())
            if item.is_rest:
                item.symbol, number = number, number + 1


def symbols_of(score: Score) -> list[dict[str, Any]]:
    """The symbols of the notes and rests of a score, in order of their numbers."""
    names = {"quarter": "noteheadBlackOnLine", "eighth": "noteheadBlackOnLine", "half": "noteheadHalfOnLine"}
    rests = {"quarter": "restQuarter", "half": "restHalf"}
    rows = []
    for _, _, item in score.chords():
        if item.is_rest:
            rows.append((item.symbol, rests[item.value], item.box))
        rows += [(note.symbol, names.get(item.value, "noteheadWholeOnLine"), note.box) for note in item.notes]
    return [{"class": name, "score": 0.9, "box": list(box)} for _, name, box in sorted(rows)]


@pytest.fixture
def values() -> dict[str, Any]:
    """The values of the score `piano`."""
    return to_values(piano(), [symbols_of(piano())])


@pytest.fixture
def music(values: dict[str, Any]) -> Music:
    """The music of the score `piano`."""
    return music_from_values(piano(), values)


@pytest.fixture
def reading(tmp_path: Path) -> Path:
    """A folder as `entourage read` writes it, with the score `piano`; its scan is in another folder."""
    return write_reading(tmp_path)


def write_reading(root: Path) -> Path:
    """Write the folder `reading`, and the folder `scans` with its page."""
    (root / "scans").mkdir()
    scan = root / "scans" / "page.png"
    pixels = np.full(SIZE[::-1], 255, dtype=np.uint8)
    pixels[:, :50] = 90
    Image.fromarray(pixels).save(scan)
    folder = root / "reading"
    folder.mkdir()
    score = piano()
    score.pages[0].source = str(scan)
    fields = score_to_dict(score)
    fields["pages"][0]["symbols"] = symbols_of(score)
    write_json(folder / "page.json", fields)
    entry = {"name": "page", "pages": [{"source": str(scan), "message": ""}], "notes": score.n_notes}
    write_json(folder / "summary.json", {"made_by": "read", "scores": [entry]})
    return folder


@pytest.fixture
def session(reading: Path) -> ReadingSession:
    """The reading, whose scans may be shown."""
    return ReadingSession(reading, ["page"], [reading.parent / "scans"])


@pytest.fixture
def opened(session: ReadingSession) -> OpenScore:
    """The score of the reading."""
    return session.score(0)


@pytest.fixture
def client(session: ReadingSession) -> Iterator[TestClient]:
    """A client that has the token."""
    app = Guard(build_app(score_routes(session), "scores.html"), TOKEN, "entourage-8765")
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}) as opened:
        yield opened


def write_detections(root: Path) -> Path:
    """Write the folder `found` as `entourage detect run`: two pages, the first with a staff and two symbols."""
    scan = root / "page.png"
    Image.fromarray(np.full((400, 600), 255, dtype=np.uint8)).save(scan)
    names = ["staff", "noteheadBlackOnLine", "clefG"]
    categories = [{"id": number, "name": name} for number, name in enumerate(names, start=1)]
    boxes = [(1, [50, 100, 500, 43]), (2, [200, 115, 12, 10]), (3, [60, 90, 25, 60])]
    annotations = [
        {"id": number, "image_id": 1, "category_id": category, "bbox": box, "score": 0.9}
        for number, (category, box) in enumerate(boxes, start=1)
    ]
    images = [
        {"id": number, "file_name": str(scan), "name": name, "width": 600, "height": 400}
        for number, name in ((1, "songs/page"), (2, "blank"))
    ]
    folder = root / "found"
    folder.mkdir()
    coco = {"categories": categories, "annotations": annotations, "images": images}
    (folder / "coco.json").write_text(json.dumps(coco))
    (folder / "pages.csv").write_text("page,interline\nsongs/page,10\nblank,\n")
    write_json(folder / "summary.json", {"made_by": "detect run"})
    return folder
