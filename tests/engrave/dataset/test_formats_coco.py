import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.engrave.decoded import decode_mask

from entourage.engrave.dataset.formats import page_table, write_coco
from entourage.engrave.render.page import Page


def test_boxes_and_masks_are_consistent(engrave: Callable[[str], Page], musicxml: str, tmp_path: Path) -> None:
    rows = page_table(engrave(musicxml), score="s", source="s.mxl", work="w", name="s-1", font="Leipzig").to_pylist()
    write_coco(tmp_path / "a.json", [rows, rows], "two pages")
    data = json.loads((tmp_path / "a.json").read_text())
    assert [image["file_name"] for image in data["images"]] == ["s-1.png"] * 2
    assert len(data["categories"]) == 136
    numbers = [annotation["id"] for annotation in data["annotations"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {annotation["image_id"] for annotation in data["annotations"]} == {1, 2}
    annotation = next(a for a in data["annotations"] if a["attributes"]["pitch"])
    mask = decode_mask(annotation["segmentation"]["counts"], *annotation["segmentation"]["size"])
    y, x = np.nonzero(mask)
    assert annotation["bbox"] == [x.min(), y.min(), x.max() + 1 - x.min(), y.max() + 1 - y.min()]
    assert annotation["area"] == mask.sum()


def test_no_pages_give_a_valid_file(tmp_path: Path) -> None:
    write_coco(tmp_path / "a.json", [], "none")
    assert json.loads((tmp_path / "a.json").read_text())["annotations"] == []
