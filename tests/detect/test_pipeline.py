from __future__ import annotations

import csv
import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from tests.detect.engraved import some_pages
from tests.detect.preprocessing.test_reading import huge_png
from tests.detect.synthetic import SquareFinder, staff_page, with_squares

from entourage.detect import pipeline
from entourage.detect.detections import Detections
from entourage.detect.detector import Detector, PageDetections
from entourage.detect.inference.results import STATE
from entourage.detect.models.watershed import WatershedDetector, save_detector
from entourage.detect.options import DetectorOptions, InferenceOptions, NetworkOptions
from entourage.detect.pipeline import category_ids, evaluate_dataset, run_detection
from entourage.detect.preprocessing.prepare import PreparedPage
from entourage.detect.preprocessing.reading import read_page
from entourage.runs.directory import lock_directory
from entourage.symbols import EXTENDED_IDS

PAGE = with_squares(staff_page(20.0, 800, 600), [(100, 30, 20), (300, 90, 20)])


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the loading of a detector by a detector of squares."""

    def load(path: object, device: str, options: InferenceOptions | None = None) -> Detector:
        return Detector(SquareFinder(), options, "cpu")  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline.Detector, "load", load)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a folder with valid pages, a corrupt image and one that is too large."""
    folder = tmp_path / "pages"
    (folder / "sub").mkdir(parents=True)
    Image.fromarray(PAGE).save(folder / "a.png")
    Image.fromarray(PAGE).save(folder / "sub" / "a.png")
    pages = [Image.fromarray(PAGE), Image.new("L", (300, 300), 255)]
    pages[0].save(folder / "b.tif", save_all=True, append_images=pages[1:])
    (folder / "broken.png").write_bytes(b"nothing")
    huge_png(folder / "huge.png", 20_000, 10_000)
    return folder


def test_pages_of_the_same_name_get_a_suffix_or_a_number(squares: None, mixed: Path, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(mixed / "a.jpg")
    run_detection([mixed], tmp_path / "out", draw=False)
    rows = list(csv.DictReader((tmp_path / "out" / "pages.csv").open()))
    assert [row["page"] for row in rows] == ["a", "a_png", "b-1", "b-2", "a_png_2"]


def test_detections_are_written_and_drawn_and_corrupt_files_are_listed(
    squares: None, mixed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    summary = run_detection([mixed], out)
    assert summary["pages"] == 4
    assert summary["symbols"] == 6
    assert {Path(one["item"]).name for one in summary["skipped"]} == {"broken.png", "huge.png"}
    rows = list(csv.DictReader((out / "pages.csv").open()))
    assert [row["page"] for row in rows] == ["a", "b-1", "b-2", "a_2"]
    assert [row["symbols"] for row in rows] == ["2", "2", "0", "2"]
    assert rows[2]["note"] == "no staves found"
    assert sorted(path.name for path in (out / "drawn").iterdir()) == ["a.png", "a_2.png", "b-1.png", "b-2.png"]
    assert len(json.loads((out / "coco.json").read_text())["annotations"]) == 6
    drawn = cv2.imread(str(out / "drawn" / "a.png"))
    assert (drawn[..., 0] != drawn[..., 2]).any()  # it contains colours
    report = (out / "report.html").read_text()
    assert "broken.png" in report
    assert json.loads((out / "summary.json").read_text()) == summary


def test_each_page_of_a_file_has_a_source_that_read_page_accepts(squares: None, mixed: Path, tmp_path: Path) -> None:
    run_detection([mixed], tmp_path / "out")
    names = [image["file_name"] for image in json.loads((tmp_path / "out" / "coco.json").read_text())["images"]]
    assert names == [f"{mixed / 'a.png'}", f"{mixed / 'b.tif'}#1", f"{mixed / 'b.tif'}#2", f"{mixed / 'sub' / 'a.png'}"]
    assert [row["file"] for row in csv.DictReader((tmp_path / "out" / "pages.csv").open())] == names
    np.testing.assert_array_equal(read_page(names[1]), PAGE)


def test_only_the_missing_pages_of_a_truncated_tiff_are_skipped(squares: None, tmp_path: Path) -> None:
    pages = [Image.fromarray(PAGE)] * 3
    path = tmp_path / "scan.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    path.write_bytes(path.read_bytes()[: int(0.8 * path.stat().st_size)])
    summary = run_detection([path], tmp_path / "out")
    assert (summary["pages"], summary["symbols"]) == (2, 4)
    (skipped,) = summary["skipped"]
    assert skipped["item"] == f"{path}#3"
    assert str(path) not in skipped["reason"]  # the item contains it
    assert "\n" not in skipped["reason"]


def test_broken_links_are_skipped(squares: None, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "absent.png")
    (tmp_path / "c.png").symlink_to(tmp_path / "c.png")
    summary = run_detection([tmp_path], tmp_path / "out")
    assert summary["pages"] == 1
    reason = "a broken link"
    assert summary["skipped"] == [{"item": str(tmp_path / name), "reason": reason} for name in ("b.png", "c.png")]


class Killed(BaseException):
    """Exception that no code catches, in place of a signal that kills the process."""


@pytest.mark.parametrize("how", [KeyboardInterrupt, Killed])
def test_an_interrupted_run_resumes(
    squares: None, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    out = tmp_path / "stopped"
    expected = run_detection([mixed], tmp_path / "uninterrupted")
    detect_prepared = Detector.detect_prepared
    calls: list[int] = []

    def stopped(self: Detector, prepared: PreparedPage) -> PageDetections:
        calls.append(1)
        if len(calls) == 3:
            raise how
        return detect_prepared(self, prepared)

    monkeypatch.setattr(Detector, "detect_prepared", stopped)
    message = pytest.warns(UserWarning, match="2 pages") if how is KeyboardInterrupt else nullcontext()
    with message, pytest.raises(how):
        run_detection([mixed], out)
    drawn = sorted(path.stem for path in (out / "drawn").iterdir())
    assert drawn == sorted(path.stem for path in (out / "xml").iterdir()) == ["a", "b-1"]
    if how is KeyboardInterrupt:
        assert [row["page"] for row in csv.DictReader((out / "pages.csv").open())] == ["a", "b-1"]
        assert len(json.loads((out / "coco.json").read_text())["annotations"]) == 4
        assert json.loads((out / "summary.json").read_text())["complete"] is False
    assert run_detection([mixed], out) == expected
    assert len(calls) == 5  # of the third and fourth page only
    for name in ("coco.json", "detections.csv"):
        assert (out / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()
    assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "uninterrupted").iterdir()}
    run_detection([mixed], out)  # a complete run is repeated
    assert len(calls) == 9


def test_a_folder_that_another_run_writes_to_is_rejected(squares: None, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    out = tmp_path / "out"
    with lock_directory(out, out / STATE), pytest.raises(ValueError, match=r"out: .*; wait for it"):
        run_detection([tmp_path / "a.png"], out)
    assert [path.name for path in out.iterdir()] == [STATE]
    assert run_detection([tmp_path / "a.png"], out)["pages"] == 1


def test_a_run_that_is_interrupted_before_its_first_page_leaves_no_results(
    squares: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: Detector, prepared: PreparedPage) -> PageDetections:
        raise KeyboardInterrupt

    monkeypatch.setattr(Detector, "detect_prepared", stopped)
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    with pytest.raises(KeyboardInterrupt):
        run_detection([tmp_path / "a.png"], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [STATE]


def test_letters_on_a_page_upside_down_are_combined_in_reading_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = ("dynamicM", "dynamicF")
    boxes = torch.tensor([[100.0, 50.0, 130.0, 70.0], [131.0, 40.0, 151.0, 75.0]])  # mf
    found = Detections(boxes, torch.tensor([1, 2]), torch.tensor([0.9, 0.8]), letters)

    class Fixed(SquareFinder):
        classes = letters

    monkeypatch.setattr(pipeline.Detector, "load", lambda *args: Detector(Fixed(), args[2], "cpu"))  # type: ignore[arg-type]
    monkeypatch.setattr(
        Detector,
        "detect_prepared",
        lambda self, prepared: PageDetections(found.rotated_180(600, 800), 20.0, 0.0, 0.1, "", upside_down=True),
    )
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    run_detection([tmp_path / "a.png"], tmp_path / "out", class_list="v1")
    (row,) = csv.DictReader((tmp_path / "out" / "detections.csv").open())
    assert row["class"] == "dynamicMF"
    assert [float(row[name]) for name in ("x0", "y0", "x1", "y1")] == [449, 725, 500, 760]


def test_unnamed_detections_of_earlier_finished_pages_are_included_in_the_summary(
    squares: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        Image.fromarray(PAGE).save(tmp_path / f"{name}.png")
    pages = (tmp_path / "a.png", tmp_path / "b.png")
    detect_prepared = Detector.detect_prepared
    calls: list[int] = []

    def stopped(self: Detector, prepared: PreparedPage) -> PageDetections:
        calls.append(1)
        if len(calls) == 2:
            raise Killed
        return detect_prepared(self, prepared)

    monkeypatch.setattr(Detector, "detect_prepared", stopped)
    with pytest.raises(Killed):
        run_detection(pages, tmp_path / "out", class_list="v1")
    summary = run_detection(pages, tmp_path / "out", class_list="v1")
    assert (summary["symbols"], summary["unnamed"]) == (0, 4)
    assert run_detection(pages, tmp_path / "own")["unnamed"] == 0


def test_drawings_of_an_earlier_run_are_not_processed(squares: None, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    for _ in range(2):
        assert run_detection([tmp_path], tmp_path / "found", draw=True)["pages"] == 1
    with pytest.raises(ValueError, match="found: contains all pages; expected another folder"):
        run_detection([tmp_path / "found" / "drawn"], tmp_path / "found")


def test_files_of_an_earlier_run_are_deleted(squares: None, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.fromarray(PAGE).save(tmp_path / f"{name}.png")
        run_detection([tmp_path / f"{name}.png"], tmp_path / "found")
    assert [path.name for path in (tmp_path / "found" / "drawn").iterdir()] == ["b.png"]
    assert [path.stem for path in (tmp_path / "found" / "xml").iterdir()] == ["b"]


def test_other_files_in_the_output_folder_are_not_deleted(squares: None, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    out = tmp_path / "found"
    run_detection([tmp_path / "a.png"], out)
    mine = [out / "drawn" / "mine.png", out / "xml" / "mine.xml", out / "notes.txt"]
    for file in mine:
        file.write_text("of a user")
    run_detection([tmp_path / "a.png"], out)
    assert [file.read_text() for file in mine] == ["of a user"] * 3
    run_detection([tmp_path / "a.png"], out, threshold=0.95, draw=False)
    assert sorted(path.name for path in out.glob("[dx]*/*")) == ["a.xml", "mine.png", "mine.xml"]


def test_drawings_are_optional(squares: None, tmp_path: Path) -> None:
    Image.fromarray(PAGE).save(tmp_path / "a.png")
    run_detection([tmp_path / "a.png"], tmp_path / "found", draw=False)
    assert not (tmp_path / "found" / "drawn").exists()


def test_a_file_as_output_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        run_detection([tmp_path], tmp_path / "out")


def test_category_ids_are_the_numbers_of_the_class_list() -> None:
    assert category_ids("own", ("x", "y")) == {"x": 1, "y": 2}
    assert category_ids("extended", ("x",)) == EXTENDED_IDS


def test_a_detector_with_other_classes_is_evaluated_with_its_own_list(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = DetectorOptions(network=NetworkOptions(widths=(8, 8), blocks=(1, 1), upwards=(8, 8), hidden=8))
    classes = ("noteheadBlackOnLine", "restQuarter", "flag8thUp", "signOfAnotherList")
    save_detector(WatershedDetector(classes, options), tmp_path / "m.safetensors")
    data = some_pages(tmp_path / "data", test=3)
    evaluate = partial(evaluate_dataset, str(data), model=str(tmp_path / "m.safetensors"), max_pages=2, device="cpu")
    with pytest.raises(ValueError, match="data: contains the pages; expected another folder"):
        evaluate(out=data)
    evaluation = evaluate(out=tmp_path / "out")
    assert evaluation.class_list == "own"
    assert evaluation.pages == 2
    assert set(evaluation.scores.classes) <= set(classes)
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["pages"] == 2
    assert np.isfinite(evaluation.scores.means()["mAP"])
