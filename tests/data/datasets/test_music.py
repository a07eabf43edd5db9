from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from entourage.data.datasets.music import find_muscima, holds_muscima, read_muscima


def write_pages(folder: Path, count: int) -> Path:
    (folder / "data" / "annotations").mkdir(parents=True)
    (folder / "images").mkdir()
    for number in range(count):
        name = f"CVC-MUSCIMA_W-{number + 1:02d}_N-10_D-ideal"
        nodes = [("staff", 5, 2, 40, 41.3), ("noteheadFull", number, 7, 3, 4)]
        text = "".join(
            f"<Node><ClassName>{label}</ClassName><Top>{top}</Top><Left>{left}</Left>"
            f"<Width>{width}</Width><Height>{int(height)}</Height></Node>"
            for label, top, left, width, height in nodes
        )
        (folder / "data" / "annotations" / f"{name}.xml").write_text(f"<Nodes>{text}</Nodes>")
        cv2.imwrite(str(folder / "images" / f"{name}.png"), np.zeros((60, 60), np.uint8))
    return folder


def test_pages_have_boxes_and_an_interline(tmp_path: Path) -> None:
    pages = read_muscima(write_pages(tmp_path / "muscima_pp", 4))
    assert [page.labels for page in pages] == [["staff", "noteheadFull"]] * 4
    assert pages[3].boxes.tolist() == [[2, 5, 42, 46], [7, 3, 10, 7]]
    assert pages[0].interline == pytest.approx(41 / 4.13)
    assert pages[0].path.is_file()


def test_the_split_has_the_proportions_of_the_thesis_and_depends_on_the_seed(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "muscima_pp", 28)
    splits = [page.split for page in read_muscima(folder)]
    assert [splits.count(name) for name in ("train", "val", "test")] == [22, 3, 3]
    assert splits == [page.split for page in read_muscima(folder)]
    assert splits != [page.split for page in read_muscima(folder, seed=1)]


def test_pages_without_an_image_are_left_out(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "muscima_pp", 3)
    next(folder.glob("images/*")).unlink()
    assert len(read_muscima(folder)) == 2


def test_muscima_is_found_below_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_pages(tmp_path / "muscima_pp", 1)
    assert find_muscima(tmp_path) == folder or holds_muscima(find_muscima(tmp_path))
    monkeypatch.setenv("ENTOURAGE_DATA", str(folder))
    assert find_muscima() == folder
    monkeypatch.delenv("ENTOURAGE_DATA")
    with pytest.raises(ValueError, match=r"ENTOURAGE_DATA .*; expected the folder of MUSCIMA"):
        find_muscima()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"muscima: missing from .*empty; expected"):
        find_muscima(tmp_path / "empty")


def test_entities_are_not_resolved(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "muscima_pp", 1)
    (tmp_path / "secret").write_text("9")
    (table,) = folder.glob("data/annotations/*")
    evil = f'<!DOCTYPE n [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]>'
    table.write_text(evil + table.read_text().replace("<Top>5<", "<Top>&e;<"))
    with pytest.raises(ValueError, match=r"expected MUSCIMA\+\+ 2\.0"):
        read_muscima(folder)


def test_invalid_annotations_are_reported_with_the_page(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "muscima_pp", 1)
    (table,) = folder.glob("data/annotations/*")
    good = table.read_text()
    for bad, match in (
        (good[:-9], r"expected MUSCIMA\+\+ 2\.0"),
        (good.replace("<Top>5</Top>", ""), "Top"),
        (good.replace(">staff<", ">stem<"), "has no staff"),
    ):
        table.write_text(bad)
        with pytest.raises(ValueError, match=match):
            read_muscima(folder)
    (tmp_path / "muscima.tar.xz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"muscima\.tar\.xz: .*; expected a tar archive"):
        read_muscima(tmp_path / "muscima.tar.xz")
