from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from entourage.data.datasets.published import read_coil100, read_cub200, read_sop

SaveGrey = Callable[[Path, int], Path]

CUB = {
    "images.txt": "1 001.Crow/a b.jpg\n2 001.Crow/b.jpg\n4 002.Wren/c.jpg\n",
    "image_class_labels.txt": "1 1\n2 1\n4 2\n",
    "train_test_split.txt": "1 0\n2 1\n4 1\n",
    "classes.txt": "1 001.Crow\n2 002.Wren\n",
}
SOP = {
    "Ebay_train.txt": "image_id class_id super_class_id path\n1 1 1 bicycle/1_0.JPG\n2 2 1 bicycle/2_0.JPG\n",
    "Ebay_test.txt": "image_id class_id super_class_id path\n3 11 2 sofa_final/11_0.JPG\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_cub200_joins_its_lists_by_number(tmp_path: Path, save_grey: SaveGrey) -> None:
    save_grey(tmp_path / "images" / "002.Wren" / "c.jpg", 70)
    images = read_cub200(write(tmp_path, CUB))
    assert images.items == ["001.Crow/a b.jpg", "001.Crow/b.jpg", "002.Wren/c.jpg"]
    assert images.labels.tolist() == [0, 0, 1]
    assert images.class_names == ["001.Crow", "002.Wren"]
    assert images.split.tolist() == [1, 0, 0]  # in the file, 1 denotes training
    assert np.asarray(images.image(2))[0, 0, 0] == pytest.approx(70, abs=1)
    with pytest.raises(ValueError, match=r"001\.Crow/b\.jpg of .*: no such file"):
        images.image(1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("images.txt", "", r"images\.txt: empty; expected lines of 2 columns"),
        ("images.txt", "1 a.jpg\n2\n", r"images\.txt: line 2 has 1 columns; expected 2"),
        ("images.txt", "1 ../../secret.jpg\n", r"names '\.\./\.\./secret\.jpg'; expected a path below"),
        ("images.txt", "1 /etc/secret.jpg\n", "names '/etc/secret.jpg'; expected a path below"),
        ("images.txt", "1 a.jpg\n2 a.jpg\n", r"item 'a\.jpg' occurs 2 times; expected unique items"),
        (
            "image_class_labels.txt",
            "1 1\n2 1\n",
            r"image_class_labels\.txt: no line for image 4; expected all images of images\.txt",
        ),
        ("image_class_labels.txt", "1 1\n2 one\n4 2\n", r"labels\.txt: line 2: 'one'; expected a number"),
        ("image_class_labels.txt", "1 1\n2 1\n4 3\n", r"image 4 is of class 3; expected a class of classes\.txt"),
        (
            "train_test_split.txt",
            "1 1\n2 1\n",
            r"train_test_split\.txt: no line for image 4; expected all images of images\.txt",
        ),
    ],
)
def test_bad_lists_of_cub200_give_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    write(tmp_path, CUB | {name: text})
    with pytest.raises(ValueError, match=message) as caught:
        read_cub200(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_missing_and_binary_lists_are_named(tmp_path: Path) -> None:
    write(tmp_path, CUB)
    (tmp_path / "classes.txt").write_bytes(b"1 \xff\n")
    with pytest.raises(ValueError, match=r"classes\.txt: .*\(byte 2\); expected a text file"):
        read_cub200(tmp_path)
    (tmp_path / "classes.txt").unlink()
    with pytest.raises(ValueError, match=r"classes\.txt: .*; expected a text file"):
        read_cub200(tmp_path)


def test_sop_numbers_the_classes_of_both_parts_consecutively(tmp_path: Path, save_grey: SaveGrey) -> None:
    save_grey(tmp_path / "sofa_final" / "11_0.JPG", 40)
    images = read_sop(write(tmp_path, SOP))
    assert images.items == ["bicycle/1_0.JPG", "bicycle/2_0.JPG", "sofa_final/11_0.JPG"]
    assert images.labels.tolist() == [0, 1, 2]
    assert images.class_names == ["1", "2", "11"]
    assert images.split.tolist() == [0, 0, 1]
    assert np.asarray(images.image(2))[0, 0, 0] == pytest.approx(40, abs=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id class_id super_class_id path\n", r"Ebay_test\.txt: empty; expected lines of 4 columns"),
        (
            "image_id class_id super_class_id path\n3 x 2 a.JPG\n",
            r"Ebay_test\.txt: line 2: the class is 'x'; expected a number",
        ),
        (
            "image_id class_id super_class_id path\n3 4 2 a.JPG\n5 6\n",
            r"Ebay_test\.txt: line 3 has 2 columns; expected 4",
        ),
        ("image_id class_id super_class_id path\n3 4 2 ../a.JPG\n", r"expected a path below"),
    ],
)
def test_bad_lists_of_sop_give_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_sop(write(tmp_path, SOP | {"Ebay_test.txt": text}))


def test_coil100_takes_object_and_angle_from_the_name(tmp_path: Path, save_grey: SaveGrey) -> None:
    for name in ("obj10__0", "obj2__10", "obj2__5", "obj1__355", "other", "obj1__x", "deeper/obj3__0"):
        save_grey(tmp_path / f"{name}.png", 0)
    images = read_coil100(tmp_path)
    assert images.items == ["obj1__355.png", "obj2__5.png", "obj2__10.png", "obj10__0.png"]
    assert images.class_names == ["obj1", "obj2", "obj10"]
    assert images.labels.tolist() == [0, 1, 1, 2]
    assert images.angles is not None
    assert images.angles.tolist() == [355, 5, 10, 0]
    assert images.split.tolist() == [0] * 4
    save_grey(tmp_path / "else" / "a.png", 0)
    with pytest.raises(ValueError, match=r"else holds .*; expected names such as obj1__0\.png"):
        read_coil100(tmp_path / "else")
