from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lxml import etree

from entourage.detect.detections import Detections
from entourage.detect.inference.results import PageResult, open_results, page_xml, write_xml

CLASSES = ("stem", "beam & <more>")
IDS = {"stem": 42, "beam & <more>": 7}


def result(name: str, count: int) -> PageResult:
    boxes = torch.tensor([[10.0 * i, 5, 10.0 * i + 4, 25] for i in range(count)]).reshape(-1, 4)
    labels = torch.tensor([1 + i % 2 for i in range(count)], dtype=torch.int64)
    found = Detections(boxes, labels, torch.full((count,), 0.75), CLASSES)
    return PageResult(
        name, f"in/{name}.png", 200, 100, found, 20.0 if count else None, 0.5, "" if count else "none, ha"
    )


def test_every_file_contains_every_page(tmp_path: Path) -> None:
    with open_results(tmp_path / "out", IDS) as files:
        files.add(result("a", 3))
        files.add(result("b", 0))
        files.add(result("c", 1))
        files.add(replace(result("d-2", 1), file="in/d.tif", number=2))
    coco = json.loads((tmp_path / "out" / "coco.json").read_text())
    assert [image["file_name"] for image in coco["images"]] == ["in/a.png", "in/b.png", "in/c.png", "in/d.tif#2"]
    assert [row["image_id"] for row in coco["annotations"]] == [1, 1, 1, 3, 4]
    assert [row["id"] for row in coco["annotations"]] == [1, 2, 3, 4, 5]
    assert coco["annotations"][1]["category_id"] == 7
    assert coco["annotations"][1]["bbox"] == [10, 5, 4, 20]
    assert coco["annotations"][1]["area"] == 80
    assert coco["annotations"][1]["score"] == 0.75
    assert {c["name"]: c["id"] for c in coco["categories"]} == IDS
    rows = list(csv.DictReader((tmp_path / "out" / "detections.csv").open()))
    assert len(rows) == 5
    assert rows[1] == {
        "page": "a",
        "class": "beam & <more>",
        "score": "0.7500",
        "x0": "10",
        "y0": "5",
        "x1": "14",
        "y1": "25",
    }
    pages = list(csv.DictReader((tmp_path / "out" / "pages.csv").open()))
    assert [row["symbols"] for row in pages] == ["3", "0", "1", "1"]
    assert [row["interline"] for row in pages] == ["20.00", "", "20.00", "20.00"]
    assert pages[1]["note"] == "none, ha"
    assert [row["file"] for row in pages] == [image["file_name"] for image in coco["images"]]


def test_xml_has_corners_as_fractions_of_the_page() -> None:
    tree = etree.fromstring(page_xml(result("a", 2)).encode())
    assert tree.findtext("filename") == "a.png"
    assert tree.findtext("size/width") == "200"
    names = [node.text for node in tree.iterfind("object/name")]
    assert names == ["stem", "beam & <more>"]
    second = tree.findall("object")[1]
    corners = [float(second.findtext(f"bndbox/{key}")) for key in ("xmin", "ymin", "xmax", "ymax")]
    assert corners == pytest.approx([10 / 200, 5 / 100, 14 / 200, 25 / 100])


def test_each_page_has_an_xml_file_that_names_its_source(tmp_path: Path) -> None:
    write_xml(tmp_path, replace(result("d-2", 1), file="in/d.tif", number=2))
    (path,) = (tmp_path / "xml").iterdir()
    assert path.name == "d-2.xml"
    assert etree.parse(path).findtext("filename") == "d.tif#2"


def test_a_failed_run_writes_no_files(tmp_path: Path) -> None:
    broken = replace(result("a", 1), seconds="soon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="format"), open_results(tmp_path, IDS) as files:
        files.add(broken)
    assert list(tmp_path.iterdir()) == []
