from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from experiments.detect_scans import KINDS, count_beams, count_kinds, count_stems, measure, scans, text
from experiments.ledger import Ledger
from lxml import etree
from PIL import Image

from entourage.detect.detections import DETECTOR_CLASSES, Detections

NAMES = ("noteheadBlackOnLine", "noteheadHalfInSpace", "stem", "beam", "restQuarter", "accidentalFlat", "keyFlat")


def found() -> Detections:
    labels = torch.tensor([DETECTOR_CLASSES.index(name) + 1 for name in NAMES])
    return Detections(torch.zeros(7, 4), labels, torch.ones(7), DETECTOR_CLASSES)


class FixedDetector:
    def detect(self, image: object) -> Detections:
        return found()


def test_stems_and_beams_of_an_encoding() -> None:
    whole = "<note><pitch/><type>whole</type></note>"
    chord = "<note><pitch/><type>half</type></note><note><chord/><pitch/><type>half</type></note>"
    beams = "<note><pitch/><type>16th</type><beam number='1'>begin</beam><beam number='2'>forward hook</beam></note>"
    hidden = "<note print-object='no'><pitch/><type>half</type></note><note><rest/><type>half</type></note>"
    root = etree.fromstring(f"<m>{whole}{chord}{beams}{hidden}</m>")
    assert count_stems(root) == 2
    assert count_beams(root) == 2


def test_kinds_are_groups_of_classes() -> None:
    assert count_kinds(found()) == {"noteheads": 2, "stems": 1, "beams": 1, "rests": 1, "accidentals": 1}


def test_pages_of_a_composer_are_measured_and_written_as_tables(tmp_path: Path) -> None:
    image = io.BytesIO()
    Image.fromarray(np.full((9, 9), 255, np.uint8)).save(image, "PNG")
    lines = ["page,noteheads_truth,rests_truth,accidentals_truth", "mozart-1,4,1,0", "scarlatti-1,1,1,1"]
    with zipfile.ZipFile(tmp_path / "scans.zip", "w") as archive:
        archive.writestr("manifest.csv", "\n".join(lines))
        archive.writestr("pages/mozart-1.png", image.getvalue())
        archive.writestr("truth/mozart-1.musicxml", "<score-partwise><part/></score-partwise>")
    ((name, make),) = scans(tmp_path / "scans.zip", "mozart")
    row = measure(FixedDetector(), make)  # type: ignore[arg-type]
    assert row == {"noteheads": [4, 2], "stems": [0, 1], "beams": [0, 1], "rests": [1, 1], "accidentals": [0, 1]}
    book = Ledger("detect_scans", tmp_path)
    book.add(f"DWD, shipped: {name}", row, 1.0)
    written = text(book)
    assert "| DWD, shipped, Mozart | 1 | noteheads | 4 | 2 | -50.0 | 50.0 |" in written
    assert "| mozart-1 | 2 / 4 |" in written
    assert len(KINDS) == 5
