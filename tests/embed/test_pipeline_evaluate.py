import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.embed.toys import index_folder

from entourage.embed import pipeline as evaluate
from entourage.embed.data import read_images
from entourage.embed.index.vector_index import Index
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.pipeline import evaluate_run, select_split


def test_metrics_match_the_index(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    summary = evaluate_run(trained, str(image_folder), tmp_path / "out", device="cpu", progress=False)
    index = Index.load(index_folder(trained))
    assert index.labels is not None
    expected = retrieval_metrics(index.vectors, index.labels)
    assert summary["metrics"] == pytest.approx(expected, abs=1e-6)
    assert (summary["images"], summary["classes"]) == (64, 8)
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == summary
    report = (tmp_path / "out" / "report.html").read_text()
    assert "64 images of 8 classes" in report
    assert "class 0/broken.png" in report


def test_auto_selects_the_test_split_if_present(image_folder: Path, tmp_path: Path) -> None:
    for part, name in (("train", "class 1"), ("test", "class 2"), ("test", "class 3")):
        shutil.copytree(image_folder / name, tmp_path / part / name)
    images = read_images(tmp_path)
    sizes = {split: len(select_split(images, split)) for split in ("auto", "all", "training", "test")}
    assert sizes == {"auto": 16, "all": 24, "training": 8, "test": 16}
    assert set(select_split(images, "test").labels) == {1, 2}
    unsplit = read_images(image_folder)
    assert len(select_split(unsplit, "auto")) == 65
    with pytest.raises(ValueError, match="has no test split; expected one, or --split all"):
        select_split(unsplit, "test")


def test_flip_changes_embeddings(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    results = [evaluate_run(trained, str(image_folder), tmp_path, flip=flip, device="cpu") for flip in (False, True)]
    plain, flipped = (np.array(list(result["metrics"].values())) for result in results)
    assert not np.array_equal(plain, flipped)


def test_single_class_raises(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "data" / "only")
    with pytest.raises(ValueError, match=r"8 images of 1 classes .*; expected two"):
        evaluate_run(trained, str(tmp_path / "data"), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_output_path_that_is_a_file_raises_before_embedding(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("images were embedded")

    monkeypatch.setattr(evaluate, "embed_images", never)
    (tmp_path / "out").touch()
    with pytest.raises(ValueError, match="out: is a file; expected a folder to write to"):
        evaluate_run(trained, str(image_folder), tmp_path / "out", device="cpu")


def test_report_of_a_run_is_not_overwritten(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    before = (trained / "report.html").read_text()
    with pytest.raises(ValueError, match=r"run: contains a run, .*; expected another folder"):
        evaluate_run(trained, str(image_folder), trained, device="cpu")
    assert (trained / "report.html").read_text() == before
    assert not (trained / "metrics.json").exists()


def test_error_lists_unreadable_images(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "data" / "good")
    (tmp_path / "data" / "bad").mkdir()
    (tmp_path / "data" / "bad" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"; expected two .*; 1 images could not be read: bad/0.png "):
        evaluate_run(trained, str(tmp_path / "data"), tmp_path / "out", device="cpu")
