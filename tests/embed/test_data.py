from pathlib import Path

import numpy as np
import pytest

from entourage.data.image_set import ImageFiles, ImageSet
from entourage.embed.data import read_images, report_skipped, sample_classes, split_rows


def image_set(labels: list[int], split: list[int] | None = None) -> ImageSet:
    n = len(labels)
    return ImageSet(
        "birds",
        ImageFiles([Path(f"{i}.png") for i in range(n)]),
        np.array(labels),
        [f"bird {label}" for label in range(max(labels) + 1)],
        np.array(split or [0] * n, dtype=np.uint8),
        [str(i) for i in range(n)],
    )


def test_existing_path_takes_precedence_over_data_set_name(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(read_images(image_folder)) == 65
    (tmp_path / "sop").symlink_to(image_folder)
    monkeypatch.chdir(tmp_path)
    assert read_images("sop").name == "sop"
    assert len(read_images("sop")) == 65


def test_data_set_name_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENTOURAGE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"data set 'cub200' .*; expected images\.txt"):
        read_images("cub200")


def test_missing_source_raises() -> None:
    with pytest.raises(
        ValueError, match=r"nowhere does not exist; expected a folder of images, an image archive .* cub200"
    ):
        read_images("nowhere")


def test_split_is_disjoint_and_holds_out_entire_classes() -> None:
    images = image_set([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [0] * 10 + [1] * 2)
    parts = split_rows(images, 0.4)
    assert sorted(np.concatenate(list(parts.by_name().values()))) == list(range(12))
    assert parts.test.tolist() == [10, 11]
    assert not set(images.labels[parts.training]) & set(images.labels[parts.validation])
    assert len(set(images.labels[parts.validation])) == 2
    assert list(split_rows(images, 0.0).by_name()) == ["training", "test"]


def test_three_classes_have_no_validation() -> None:
    assert list(split_rows(image_set([0, 0, 1, 1, 2, 2]), 0.5).by_name()) == ["training"]


def test_classes_of_single_images_are_not_held_out() -> None:
    assert list(split_rows(image_set([0, 1, 2, 3, 4, 5]), 0.5).by_name()) == ["training"]


def test_single_class_raises() -> None:
    with pytest.raises(ValueError, match=r"birds: the training images are of 1 class \(bird 0\); expected two or more"):
        split_rows(image_set([0, 0, 1, 1], [0, 0, 1, 1]), 0.1)


def test_sampled_classes_have_about_n_rows_images() -> None:
    labels = np.repeat(np.arange(10), 5)
    rows = np.arange(10, 50)  # classes 2 to 9
    sampled = sample_classes(labels, rows, 12, seed=3)
    classes, counts = np.unique(labels[sampled], return_counts=True)
    assert len(classes) == 3
    assert set(classes) <= set(range(2, 10))
    assert (counts == 5).all()
    assert sample_classes(labels, rows, 1000).tolist() == rows.tolist()
    assert len(sample_classes(labels, rows, 1)) == 10  # two classes at least


def test_unreadable_images_are_appended_to_errors() -> None:
    with pytest.raises(ValueError, match=r"^too few$"), report_skipped([]):
        raise ValueError("too few")
    broken = [("a.png", "empty")]
    with (
        pytest.raises(ValueError, match=r"^too few; 1 images could not be read: a.png \(empty\)$"),
        report_skipped(broken),
    ):
        raise ValueError("too few")
    with report_skipped(broken):
        pass
