from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree
from tests.read.small import melody

from entourage.read.formats.mei import to_mei, write_mei
from entourage.read.formats.musicxml import to_musicxml

MEI = "{http://www.music-encoding.org/ns/mei}"


def test_mei_has_the_notes_of_the_score(tmp_path: Path) -> None:
    write_mei(to_musicxml(melody()), tmp_path / "a.mei")
    root = etree.parse(str(tmp_path / "a.mei")).getroot()
    assert root.tag == f"{MEI}mei"
    notes = [(n.get("pname"), n.get("oct"), n.get("dur")) for n in root.iter(f"{MEI}note")]
    expected = [("g", "4", "4"), ("a", "4", "4"), ("f", "5", "2"), ("c", "5", "8"), ("d", "5", "8"), ("b", "4", "4")]
    assert notes == expected


def test_the_same_score_gives_the_same_ids() -> None:
    def ids() -> list[str]:
        root = etree.fromstring(to_mei(to_musicxml(melody())).encode())
        return [note.get("{http://www.w3.org/XML/1998/namespace}id") for note in root.iter(f"{MEI}note")]

    assert ids() == ids()


def test_what_verovio_cannot_read_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"musicxml: .*; expected a partwise"):
        to_mei("no XML")
