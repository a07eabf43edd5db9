from pathlib import Path

from entourage.engrave.leftovers import remove_leftovers
from entourage.engrave.work import STATE


def test_only_files_of_tasks_that_were_begun_here_go(tmp_path: Path) -> None:
    places = ["images/a-f-1.png", "images/a-f-2.png", "segmentation/a-f-2_seg.png", "instances/b-f-1_inst.png"]
    places += ["xml_annotations/c-f-10.xml", "sources/b-f.mxl", "sources/b-f.mei", "sources/a-f.mxl"]
    others = ["images/z-f-1.png", "images/a-f.png", "images/a-f-1.jpg", "sources/b-f.txt"]
    others += ["a-f-2.png", "images/a/a-f-2.png"]
    for name in (*places, *others, f"{STATE}/a-f.parquet", f"{STATE}/b-f.parquet", f"{STATE}/c-f.begun"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "images" / "a-f-3.png").symlink_to(tmp_path / "a-f-2.png")
    kept = {"images/a-f-1.png", "sources/a-f.mxl"}
    assert remove_leftovers(tmp_path, {"a-f"}, kept) == sorted({*places} - kept)
    left = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {*others, *kept, "images/a-f-3.png", f"{STATE}/a-f.parquet"}
    assert remove_leftovers(tmp_path, {"a-f"}, kept) == []


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert remove_leftovers(tmp_path, (), ()) == []
