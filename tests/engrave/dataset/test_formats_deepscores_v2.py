import json
from collections.abc import Callable
from pathlib import Path

from entourage.engrave.dataset.formats import page_table, write_deepscores
from entourage.engrave.render.page import Page


def test_the_file_has_the_structure_of_deepscoresv2(
    engrave: Callable[[str], Page], musicxml: str, tmp_path: Path
) -> None:
    page = engrave(musicxml)
    rows = page_table(page, score="s", source="s.mxl", work="w", name="s-1", font="Leipzig").to_pylist()
    write_deepscores(tmp_path / "a.json", [rows, rows], "two pages")
    data = json.loads((tmp_path / "a.json").read_text())
    assert set(data) == {"info", "annotation_sets", "categories", "images", "annotations"}
    assert data["annotation_sets"] == ["deepscores", "muscima++"]
    assert len(data["categories"]) == 208
    assert data["categories"]["6"]["name"] == "clefG"
    assert data["categories"]["142"] == {"name": "clefG", "annotation_set": "muscima++", "color": 6}
    first, second = data["images"]
    assert first["source"] == "s.mxl"
    labelled = sum(1 for s in page.symbols if s.extended)
    assert first["ann_ids"] == [str(i) for i in range(1, labelled + 1)]
    assert second["ann_ids"][0] == str(labelled + 1)
    assert set(data["annotations"]) == {*first["ann_ids"], *second["ann_ids"]}
    clef = next(a for a in data["annotations"].values() if a["cat_id"][0] == "6")
    assert clef["cat_id"] == ["6", "142"]
    assert clef["img_id"] == "1"
    assert len(clef["o_bbox"]) == 8
    head = next(a for a in data["annotations"].values() if "pitch:Bb4" in a["comments"])
    assert "onset:1;duration:0.5;rel_position:0;" in head["comments"]
    assert "element:p1m1n2;" in head["comments"]


def test_large_onsets_have_six_decimals(engrave: Callable[[str], Page], musicxml: str, tmp_path: Path) -> None:
    page = engrave(musicxml)
    rows = page_table(page, score="s", source="s.mxl", work="w", name="s-1", font="Leipzig").to_pylist()
    head = next(row for row in rows if row["pitch"] == "Bb4")
    head |= {"onset": 12345.333333, "duration": 0.333333, "position": -3}
    write_deepscores(tmp_path / "a.json", [[head]], "late")
    (annotation,) = json.loads((tmp_path / "a.json").read_text())["annotations"].values()
    assert "onset:12345.333333;duration:0.333333;rel_position:-3;" in annotation["comments"]


def test_no_pages_give_a_valid_file(tmp_path: Path) -> None:
    write_deepscores(tmp_path / "a.json", [], "none")
    data = json.loads((tmp_path / "a.json").read_text())
    assert data["annotations"] == {}
    assert data["images"] == []
