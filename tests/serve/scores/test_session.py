from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entourage.serve.scores.session import OpenScore, ReadingSession
from entourage.serve.store import ConflictError


def pitch(measure: int = 0, steps: int = 1) -> dict[str, Any]:
    return {"kind": "pitch", "part": 0, "measure": measure, "chord": 0, "note": 0, "steps": steps}


def test_ten_corrections_and_ten_undos_leave_the_score_as_it_was(opened: OpenScore) -> None:
    before, engraved = dict(opened.history.values), opened.engraving(0)
    shown = (opened.state()["measures"], opened.page(0)["notes"])
    corrections = [
        pitch(),
        {**pitch(1), "kind": "accidental", "accidental": "flat"},
        {**pitch(0), "kind": "duration", "value": "half", "dots": 0, "tuplet": None},
        {**pitch(2), "kind": "voice", "chord": 1, "voice": 2},
        {"kind": "key", "measure": 1, "key": -3},
        {"kind": "meter", "measure": 2, "meter": [3, 4, ""]},
        {**pitch(1), "kind": "clef", "chord": -1, "staff": 1, "clef": {"sign": "C", "line": 3, "octave": 0}},
        {"kind": "class", "page": 0, "symbol": 4, "name": "noteheadBlackInSpace"},
        {"kind": "add", "page": 0, "name": "restHalf", "box": [700, 110, 720, 130]},
        {**pitch(3), "kind": "delete"},
    ]
    for body in corrections:
        assert opened.edit(body, opened.version) is not None, body
    corrected = dict(opened.history.values)
    for _ in corrections:
        opened.undo(opened.version)
    assert opened.history.values == before
    assert (opened.state()["measures"], opened.page(0)["notes"]) == shown
    assert opened.engraving(0)[1] == engraved[1]
    for _ in corrections:
        opened.redo(opened.version)
    assert opened.history.values == corrected


def test_corrections_are_kept_over_restarts(opened: OpenScore, reading: Path) -> None:
    opened.edit(pitch(), 0)
    opened.edit(pitch(2, -2), 1)
    opened.undo(2)
    again = ReadingSession(reading, ["page"]).score(0)
    assert again.history.values == opened.history.values
    assert again.page(0)["notes"] == opened.page(0)["notes"]
    assert (again.version, again.history.can_redo) == (3, True)


def test_another_reading_begins_another_history(opened: OpenScore, reading: Path) -> None:
    opened.edit(pitch(), 0)
    text = (reading / "page.json").read_text()
    (reading / "page.json").write_text(text.replace('"alter": 1', '"alter": 0'))
    assert ReadingSession(reading, ["page"]).score(0).version == 0
    (reading / "page.json").write_text(text)
    assert ReadingSession(reading, ["page"]).score(0).version == 1


def test_later_changes_of_another_place_are_made_and_of_the_same_place_are_not(opened: OpenScore) -> None:
    opened.edit(pitch(0), 0)
    assert opened.edit(pitch(2), 0) is not None
    with pytest.raises(ConflictError, match="; expected the newest version"):
        opened.edit(pitch(0), 0)
    with pytest.raises(ConflictError, match=r"version is 0, .*; expected 2"):
        opened.edit({"kind": "remove", "page": 0, "symbol": 3}, 0)


def test_only_changed_systems_are_engraved_again(opened: OpenScore) -> None:
    assert [system["version"] for system in opened.state()["systems"]] == [0, 0]
    opened.edit(pitch(3), 0)
    assert [system["version"] for system in opened.state()["systems"]] == [0, 1]
    opened.edit({"kind": "key", "measure": 0, "key": 3}, 1)
    assert [system["version"] for system in opened.state()["systems"]] == [2, 2]
    assert opened.engraving(1)[0] == 2


def test_the_page_shows_notes_rests_symbols_and_reasons(opened: OpenScore) -> None:
    page = opened.page(0)
    assert (len(page["notes"]), len(page["symbols"])) == (19, 19)
    target, box, details = page["notes"][0]
    assert (target, len(box), details["pitch"], details["value"], details["symbol"]) == (
        [0, 0, 0, 0],
        4,
        "G4",
        "quarter",
        0,
    )
    assert [row[2]["value"] for row in page["notes"] if row[2]["pitch"] == ""] == ["quarter", "half"]
    opened.edit({"kind": "meter", "measure": 3, "meter": [3, 4, ""]}, 0)
    measure = opened.state()["measures"][3]
    assert (measure[2], measure[4], measure[6]) == (4, "a voice is longer than the measure", "marked")
    assert opened.measure(3) == [{"key": None, "meter": (3, 4, ""), "clefs": []}]
    assert len(opened.playback()["tones"]) == 17


@pytest.mark.parametrize(("method", "number"), [("page", 1), ("engraving", 2), ("measure", 4), ("page", -1)])
def test_places_that_do_not_exist_raise(opened: OpenScore, method: str, number: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        getattr(opened, method)(number)


def test_damaged_readings_raise(reading: Path) -> None:
    (reading / "page.json").write_text('{"format": "entourage-score", "version": 1, "pages": 3}')
    with pytest.raises(ValueError, match=r"page.json: .*expected the JSON of a score"):
        ReadingSession(reading, ["page"]).score(0)
    with pytest.raises(ValueError, match="score: is 1; expected 0 to 0"):
        ReadingSession(reading, ["page"]).score(1)


def test_split_measures_are_undone_and_kept_over_restarts(opened: OpenScore, reading: Path) -> None:
    before, engraved = dict(opened.history.values), [opened.engraving(system) for system in (0, 1)]
    opened.edit({**pitch(1), "kind": "split", "chord": 2}, 0)
    assert [(system["first"], system["last"]) for system in opened.state()["systems"]] == [(0, 2), (3, 4)]
    assert 'data-m="4"' in opened.engraving(1)[1]
    again = ReadingSession(reading, ["page"]).score(0)
    assert again.state()["measures"] == opened.state()["measures"]
    again.edit({**pitch(3), "kind": "join"}, 1)
    assert len(again.state()["measures"]) == 4
    for _ in range(2):
        again.undo(again.version)
    assert again.history.values == before
    assert [again.engraving(system)[1] for system in (0, 1)] == [svg for _, svg in engraved]
