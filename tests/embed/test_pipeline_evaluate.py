import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.embed.toys import index_file

from entourage.embed import pipeline as evaluate
from entourage.embed.data import read_images
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.pipeline import evaluate_run, select_split
from entourage.io.weights import read_weights


def test_metrics_are_those_of_the_index(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    summary = evaluate_run(trained, str(image_folder), tmp_path / "out", device="cpu", progress=False)
    tensors, notes = read_weights(index_file(trained))
    expected = retrieval_metrics(tensors["embeddings"], notes["classes"])
    assert summary["metrics"] == pytest.approx(expected, abs=1e-6)
    assert (summary["images"], summary["classes"]) == (64, 8)
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == summary
    report = (tmp_path / "out" / "report.html").read_text()
    assert "64 images of 8 classes" in report
    assert "class 0/broken.png" in report


def test_the_part_for_testing_is_taken_where_there_is_one(image_folder: Path, tmp_path: Path) -> None:
    for part, name in (("train", "class 1"), ("test", "class 2"), ("test", "class 3")):
        shutil.copytree(image_folder / name, tmp_path / part / name)
    images = read_images(tmp_path)
    sizes = {split: len(select_split(images, split)) for split in ("auto", "all", "training", "test")}
    assert sizes == {"auto": 16, "all": 24, "training": 8, "test": 16}
    assert set(select_split(images, "test").labels) == {1, 2}
    whole = read_images(image_folder)
    assert len(select_split(whole, "auto")) == 65
    with pytest.raises(ValueError, match="has no test split; expected one, or --split all"):
        select_split(whole, "test")


def test_mirror_images_change_embeddings(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    results = [evaluate_run(trained, str(image_folder), tmp_path, flip=flip, device="cpu") for flip in (False, True)]
    plain, flipped = (np.array(list(result["metrics"].values())) for result in results)
    assert not np.array_equal(plain, flipped)


def test_one_class_cannot_be_measured(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "data" / "only")
    with pytest.raises(ValueError, match="8 images of 1 classes cannot be measured; expected two"):
        evaluate_run(trained, str(tmp_path / "data"), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_is_refused_before_anything_is_embedded(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("images were embedded")

    monkeypatch.setattr(evaluate, "embed_images", never)
    (tmp_path / "out").touch()
    with pytest.raises(ValueError, match="out: is a file; expected a folder to write to"):
        evaluate_run(trained, str(image_folder), tmp_path / "out", device="cpu")


def test_the_report_of_a_run_is_not_overwritten(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    before = (trained / "report.html").read_text()
    with pytest.raises(ValueError, match="run: holds a run, whose report would be overwritten; expected"):
        evaluate_run(trained, str(image_folder), trained, device="cpu")
    assert (trained / "report.html").read_text() == before
    assert not (trained / "metrics.json").exists()


def test_images_that_cannot_be_read_are_named_where_they_leave_too_few(
    trained: Path, image_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "data" / "good")
    (tmp_path / "data" / "bad").mkdir()
    (tmp_path / "data" / "bad" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"cannot be measured; .*; 1 images could not be read: bad/0.png "):
        evaluate_run(trained, str(tmp_path / "data"), tmp_path / "out", device="cpu")
