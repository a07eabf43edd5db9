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


def test_a_folder_is_read_and_a_path_goes_before_a_name(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(read_images(image_folder)) == 65
    (tmp_path / "sop").symlink_to(image_folder)
    monkeypatch.chdir(tmp_path)
    assert read_images("sop").name == "sop"
    assert len(read_images("sop")) == 65


def test_a_data_set_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENTOURAGE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="data set 'cub200' is missing"):
        read_images("cub200")


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"nowhere does not exist; expected a folder of images, a pack .* cub200"):
        read_images("nowhere")


def test_parts_are_disjoint_and_whole_classes_are_held_out() -> None:
    images = image_set([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [0] * 10 + [1] * 2)
    parts = split_rows(images, 0.4)
    assert sorted(np.concatenate(list(parts.by_name().values()))) == list(range(12))
    assert parts.test.tolist() == [10, 11]
    assert not set(images.labels[parts.training]) & set(images.labels[parts.validation])
    assert len(set(images.labels[parts.validation])) == 2
    assert list(split_rows(images, 0.0).by_name()) == ["training", "test"]


def test_three_classes_are_all_trained_on() -> None:
    assert list(split_rows(image_set([0, 0, 1, 1, 2, 2]), 0.5).by_name()) == ["training"]


def test_classes_of_single_images_are_not_held_out() -> None:
    assert list(split_rows(image_set([0, 1, 2, 3, 4, 5]), 0.5).by_name()) == ["training"]


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"birds: the training images are of 1 class \(bird 0\); expected two or more"):
        split_rows(image_set([0, 0, 1, 1], [0, 0, 1, 1]), 0.1)


def test_sampled_classes_have_about_n_rows_images() -> None:
    labels = np.repeat(np.arange(10), 5)
    rows = np.arange(10, 50)  # classes 2 to 9
    chosen = sample_classes(labels, rows, 12, seed=3)
    classes, counts = np.unique(labels[chosen], return_counts=True)
    assert len(classes) == 3
    assert set(classes) <= set(range(2, 10))
    assert (counts == 5).all()
    assert sample_classes(labels, rows, 1000).tolist() == rows.tolist()
    assert len(sample_classes(labels, rows, 1)) == 10  # two classes at least


def test_what_could_not_be_read_is_named_only_where_there_is_something() -> None:
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
