from collections.abc import Callable
from pathlib import Path

import pytest

from entourage.data.datasets.folders import files_below, read_caltech101, read_image_folder

SaveGrey = Callable[[Path, int], Path]


def fill(root: Path, save_grey: SaveGrey, *names: str) -> Path:
    for name in names:
        save_grey(root / name, 0)
    return root


def test_the_first_level_is_the_class(tmp_path: Path, save_grey: SaveGrey) -> None:
    images = read_image_folder(fill(tmp_path, save_grey, "b/2.png", "a/x/1.png", "b/1.jpg", "B/1.png"))
    assert images.items == ["B/1.png", "a/x/1.png", "b/1.jpg", "b/2.png"]
    assert images.class_names == ["B", "a", "b"]
    assert images.labels.tolist() == [0, 1, 2, 2]
    assert images.split.tolist() == [0] * 4
    assert images.name == str(tmp_path)
    assert images.image(0).size == (6, 4)


@pytest.mark.parametrize("other", ["test", "val"])
def test_the_split_is_that_of_the_train_and_test_folders(tmp_path: Path, save_grey: SaveGrey, other: str) -> None:
    images = read_image_folder(
        fill(tmp_path, save_grey, "train/b/1.png", "train/c/1.png", f"{other}/b/1.png", f"{other}/a/1.png")
    )
    assert images.class_names == ["a", "b", "c"]
    by_item = dict(zip(images.items, zip(images.labels.tolist(), images.split.tolist(), strict=True), strict=True))
    expected = {
        "train/b/1.png": (1, 0),
        "train/c/1.png": (2, 0),
        f"{other}/b/1.png": (1, 1),
        f"{other}/a/1.png": (0, 1),
    }
    assert by_item == expected


def test_val_is_ignored_if_there_is_a_test_folder(tmp_path: Path, save_grey: SaveGrey) -> None:
    images = read_image_folder(
        fill(tmp_path, save_grey, "train/a/1.png", "val/a/1.png", "val/b/1.png", "val/2.png", "test/a/1.png")
    )
    assert dict(zip(images.items, images.split.tolist(), strict=True)) == {"train/a/1.png": 0, "test/a/1.png": 1}
    assert images.class_names == ["a"]
    assert len(images.source) == 2
    assert read_image_folder(fill(tmp_path / "train", save_grey, "x/1.png")).class_names == ["a", "x"]


def test_train_may_be_a_class_or_the_only_part(tmp_path: Path, save_grey: SaveGrey) -> None:
    vehicles = read_image_folder(fill(tmp_path / "v", save_grey, "train/1.png", "bus/1.png"))
    assert vehicles.class_names == ["bus", "train"]
    train_only = read_image_folder(fill(tmp_path / "t", save_grey, "train/a/1.png"))
    assert train_only.class_names == ["a"]
    assert train_only.split.tolist() == [0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a/1.png", "1.png"], r"1\.png: .*; expected images as .*/CLASS/IMAGE"),
        (["train/a/1.png", "test/1.png"], r"test/1\.png: .*; expected images as .*/train/CLASS/IMAGE"),
    ],
)
def test_images_outside_classes_are_rejected(
    tmp_path: Path, save_grey: SaveGrey, names: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_image_folder(fill(tmp_path, save_grey, *names))


def test_folders_without_images_are_rejected(tmp_path: Path, save_grey: SaveGrey) -> None:
    with pytest.raises(ValueError, match=r"gone .*; expected a folder of images"):
        read_image_folder(tmp_path / "gone")
    fill(tmp_path, save_grey, "x/1.png")
    with pytest.raises(ValueError, match="images of x only; expected other classes"):
        read_image_folder(tmp_path, exclude={"x"})


def test_the_clutter_of_caltech101_is_not_a_class(tmp_path: Path, save_grey: SaveGrey) -> None:
    root = tmp_path / "101_ObjectCategories"
    fill(root, save_grey, "Faces/image_0001.jpg", "BACKGROUND_Google/image_0001.jpg", "ant/image_0001.jpg")
    images = read_caltech101(tmp_path)
    assert images.items == ["Faces/image_0001.jpg", "ant/image_0001.jpg"]
    assert images.class_names == ["Faces", "ant"]


def test_paths_in_lists_must_lie_below_the_folder(tmp_path: Path) -> None:
    assert list(files_below(tmp_path, ["a/..b.jpg"]).paths) == [tmp_path / "a/..b.jpg"]
    for name in ("../a.jpg", "a/../../b.jpg", "/a.jpg"):
        with pytest.raises(ValueError, match="expected a path below that folder"):
            files_below(tmp_path, ["fine.jpg", name])
