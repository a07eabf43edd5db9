from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.detect.engraved import some_pages, write_engraved

from entourage.detect.evaluation.ground_truth import NoPagesError, class_names, make_page, read_ground_truth
from entourage.detect.evaluation.page_evaluation import ground_truth_detections


def test_a_damaged_table_raises(tmp_path: Path) -> None:
    folder = some_pages(tmp_path / "data")
    (folder / "symbols.parquet").write_bytes(b"no table")
    with pytest.raises(
        ValueError, match=r"symbols\.parquet: damaged, or another table; expected a table written by `entourage"
    ):
        read_ground_truth(folder, "test")


def test_a_folder_of_engrave_has_classes_boxes_and_images(tmp_path: Path) -> None:
    symbols = [
        ("staff", "", 40, 120, 440, 202),
        ("clefG", "gClefChange", 50, 60, 70, 110),
        ("", "dynamicPP", 60, 220, 90, 240),
        ("noteheadBlackOnLine", "noteheadBlack", 100, 130, 124, 150),
    ]
    folder = write_engraved(tmp_path / "data", [("b", "test", symbols), ("a", "test", symbols[:1])])
    first, second = read_ground_truth(folder, "test")
    assert (first.name, second.name) == ("a", "b")
    assert second.labels == ["staff", "gClefChange", None, "noteheadBlackOnLine"]
    assert second.v1 == ["", "gClefChange", "dynamicPP", "noteheadBlack"]
    assert second.extended == ["staff", "clefG", "", "noteheadBlackOnLine"]
    assert second.interline == 20
    assert second.boxes.dtype == np.float32
    assert second.boxes.tolist() == [list(map(float, symbol[2:])) for symbol in symbols]
    image = second.image()
    assert image.shape == (320, 480)
    assert image[140, 110] == 0  # ink is dark
    assert image[0, 0] == 255


def test_split_selects_pages_and_none_selects_all(tmp_path: Path) -> None:
    folder = some_pages(tmp_path / "data", train=3, val=2, test=1)
    assert [len(read_ground_truth(folder, split)) for split in ("train", "val", "test")] == [3, 2, 1]
    assert len(read_ground_truth(folder)) == 6


def test_duplicate_symbols_of_the_same_class_are_removed() -> None:
    box = [1, 2, 3, 4]
    symbols = [("a", "x", "y"), ("b", "x", "y"), ("a", "x", "y")]
    page = make_page("p", Path("p.png"), 20.0, symbols, np.array([box, box, box]))
    assert page.labels == ["a", "b"]
    assert page.boxes.tolist() == [box, box]


def test_class_names_omit_symbols_without_a_class(tmp_path: Path) -> None:
    pages = read_ground_truth(some_pages(tmp_path / "data"))
    assert class_names(pages) == ("flag8thUp", "noteheadBlackOnLine", "restQuarter", "staff")


def test_deepscores_is_read_from_an_archive_and_from_a_folder(tmp_path: Path) -> None:
    content = {
        "images": [{"id": 1, "filename": "p.png", "ann_ids": ["1", "2"]}],
        "annotations": {
            "1": {"a_bbox": [10.0, 20.0, 400.0, 102.6], "cat_id": ["135", "208"]},
            "2": {"a_bbox": [30.5, 40.0, 50.0, 60.0], "cat_id": ["25", "157"]},
        },
    }
    image = cv2.imencode(".png", np.full((200, 420), 200, np.uint8))[1].tobytes()
    files = {"s/deepscores_v2.json": json.dumps(content).encode(), "s/images/p.png": image}
    for name, data in files.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "sample.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    for source in (tmp_path / "folder", tmp_path / "sample.zip"):
        (page,) = read_ground_truth(source, "test")
        assert page.name == "p"
        assert page.extended == ["staff", "noteheadBlackOnLine"]
        assert page.v1 == ["", "noteheadBlack"]
        assert page.interline == pytest.approx(82.6 / 4.13, rel=1e-4)
        assert page.boxes[1].tolist() == [30.5, 40, 50, 60]
        assert page.image()[0, 0] == 200
        with pytest.raises(ValueError, match=r"no page of the split 'train'; expected 'test'$"):
            read_ground_truth(source, "train")


def test_pages_of_muscima_are_inverted_to_dark_ink(tmp_path: Path) -> None:
    node = "<Node><ClassName>staff</ClassName><Top>5</Top><Left>2</Left><Width>40</Width><Height>20</Height></Node>"
    image = np.zeros((60, 60), np.uint8)
    image[5, 2:42] = 255
    files = {"x.xml": f"<Nodes>{node}</Nodes>".encode(), "x.png": cv2.imencode(".png", image)[1].tobytes()}
    path = tmp_path / "muscima_pp.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"pp/CVC-MUSCIMA_W-01_N-10_D-ideal{Path(name).suffix}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (page,) = read_ground_truth(path)
    assert page.labels == ["staff"]
    assert page.boxes.tolist() == [[2, 5, 42, 25]]
    assert page.image()[5, 10] == 0
    assert page.image()[0, 0] == 255
    with pytest.raises(NoPagesError, match=r"no page of the split 'test'; expected 'train'$"):
        read_ground_truth(path, "test")


def test_invalid_data_sets_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a data set; expected"):
        read_ground_truth(tmp_path)
    with pytest.raises(ValueError, match="split is 'all'; expected one of train, val, test"):
        read_ground_truth(tmp_path, "all")
    folder = some_pages(tmp_path / "data", test=0)
    with pytest.raises(NoPagesError, match=r"no page of the split 'test'; expected 'train' or 'val'$"):
        read_ground_truth(folder, "test")
    (folder / "images" / "page-0.png").unlink()
    with pytest.raises(ValueError, match=r"page-0\.png: .*; expected an image"):
        read_ground_truth(folder, "train")[0].image()
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"data: .*; expected a data set from `entourage engrave`"):
        read_ground_truth(folder, "train")
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"bad\.zip: .*; expected a zip archive"):
        read_ground_truth(tmp_path / "bad.zip")


def test_symbols_of_the_full_list_have_a_label_if_the_table_has_them(tmp_path: Path) -> None:
    symbols = [("", "", 40, 120, 42, 202), ("clefG", "gClefChange", 50, 60, 70, 110)]
    folder = write_engraved(tmp_path / "data", [("a", "test", symbols)])
    (page,) = read_ground_truth(folder, "test")
    assert page.labels == [None, "gClefChange"]
    table = pq.read_table(folder / "symbols.parquet")
    full = pa.array(["barlineSingle", "clefG"])
    pq.write_table(table.append_column("full", full), folder / "symbols.parquet")
    (page,) = read_ground_truth(folder, "test")
    assert page.labels == ["barlineSingle", "gClefChange"]
    assert page.extended == ["", "clefG"]
    assert ground_truth_detections(page, "full").names == ["barlineSingle", "clefG"]
    assert ground_truth_detections(page, "extended").names == ["clefG"]
