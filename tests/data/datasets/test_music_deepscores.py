from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from entourage.data.datasets import music as deepscores
from entourage.data.datasets.music import holds_deepscores, read_deepscores, read_member, split_of
from entourage.symbols import EXTENDED_IDS

STAFF_BOX = {"a_bbox": [10.0, 20.0, 400.0, 102.6], "cat_id": ["135", "208"]}


def table(*files: str) -> bytes:
    images = [{"id": 1, "filename": file, "ann_ids": ["1"]} for file in files]
    return json.dumps({"images": images, "annotations": {"1": STAFF_BOX}}).encode()


def packed(path: Path, **files: bytes) -> Path:
    """Write an archive; "images_" in a name denotes the folder s/images/, "__" a dot."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("images_", "s/images/").replace("__", "."), content)
    return path


def test_splits_are_read_from_the_names_of_the_tables(tmp_path: Path) -> None:
    files = {"deepscores_train__json": table("a.png", "b.png"), "deepscores_test__json": table("c.png")}
    images = {f"images_{name}__png": b"" for name in "abc"}
    path = packed(tmp_path / "x.zip", **files, **images)
    names = {split: [page.name for page in read_deepscores(path, split)] for split in ("train", "val", "test", None)}
    assert names == {"train": ["a", "b"], "val": [], "test": ["c"], None: ["a", "b", "c"]}
    assert split_of("s/deepscores-complete-3_train.json") == "train"
    assert split_of("deepscores_v2_sample.json") == "test"
    assert holds_deepscores(path)
    assert not holds_deepscores(tmp_path)


def test_a_page_has_the_interline_of_its_staves_and_its_member_of_the_archive(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", deepscores__json=table("a.png"), images_a__png=b"pixels")
    (page,) = read_deepscores(path)
    assert (page.path, page.member, page.categories) == (path, "s/images/a.png", [135])
    assert page.interline == pytest.approx(82.6 / 4.13, rel=1e-4)
    assert read_member(path, "s/images/a.png") == b"pixels"
    assert EXTENDED_IDS["staff"] == deepscores.STAFF_CATEGORY


def test_only_tables_up_to_a_maximum_size_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "x.zip", deepscores__json=table("a.png"), images_a__png=bytes(5000), big__bin=b"0")
    unpacked: list[str] = []
    read = zipfile.ZipFile.read

    def record(self: zipfile.ZipFile, name: str, *arguments: Any) -> bytes:
        unpacked.append(name)
        return read(self, name, *arguments)

    monkeypatch.setattr(zipfile.ZipFile, "read", record)
    read_deepscores(path)
    assert unpacked == ["deepscores.json"]
    with pytest.raises(ValueError, match=r"s/images/a.png has 5000 bytes, unpacked; expected at most 4999"):
        read_member(path, "s/images/a.png", 4999)
    monkeypatch.setattr(deepscores, "MAX_TABLE_BYTES", 10)
    with pytest.raises(ValueError, match=r"deepscores.json has \d+ bytes, unpacked; expected at most 10"):
        read_deepscores(path)


def test_other_archives_are_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.zip: .*; expected deepscores\*\.json"):
        read_deepscores(packed(tmp_path / "a.zip", x__json=b"{}"))
    for content in (b"{}", b"[1]", b"\xff", b'{"images": [{}], "annotations": {}}', b'{"images": [1]'):
        path = packed(tmp_path / "b.zip", deepscores__json=content)
        with pytest.raises(ValueError, match=r"deepscores.json .*; expected a table of DeepScoresV2") as caught:
            read_deepscores(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"c\.zip: image a\.png .*; expected all images of the table"):
        read_deepscores(packed(tmp_path / "c.zip", deepscores__json=table("a.png")))
    with pytest.raises(ValueError, match=r"s/images/z.png cannot be unpacked"):
        read_member(path, "s/images/z.png")
