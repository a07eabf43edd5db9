from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.data.datasets.folders import join_packs, read_pack

PackArrays = Callable[..., dict[str, Any]]


def grey(image: Any) -> int:
    return int(np.asarray(image)[0, 0, 0])


def save(path: Path, arrays: dict[str, Any], *without: str) -> Path:
    np.savez(path, **{key: array for key, array in arrays.items() if key not in without})
    return path


def test_all_arrays_of_a_pack_are_read(tmp_path: Path, pack_arrays: PackArrays) -> None:
    path = save(tmp_path / "p.npz", pack_arrays([0, 1, 1]))
    images = read_pack(path)
    assert [grey(images.image(index)) for index in range(3)] == [0, 10, 20]
    assert images.image(0).size == (6, 4)
    assert images.labels.tolist() == [0, 1, 1]
    assert images.labels.dtype == np.int64
    assert images.split.tolist() == [0, 1, 0]
    assert images.class_names == ["ant", "bee"]
    assert images.items == ["ant/0.png", "bee/1.png", "bee/2.png"]
    assert images.sizes is not None
    assert images.sizes.tolist() == [[60, 40], [61, 40], [62, 40]]
    assert images.angles is None
    assert images.name == str(path)


def test_optional_arrays_may_be_missing(tmp_path: Path, pack_arrays: PackArrays) -> None:
    path = save(tmp_path / "p.npz", pack_arrays([1, 0]), "split", "filenames", "orig_size")
    images = read_pack(path)
    assert images.items == ["bee/0", "ant/1"]
    assert images.split.tolist() == [0, 0]
    assert images.sizes is None


def test_views_are_named_by_their_angle(tmp_path: Path, pack_arrays: PackArrays) -> None:
    arrays = pack_arrays([0, 0], ["obj1"]) | {"angle": np.array([0, 355], dtype=np.int16)}
    images = read_pack(save(tmp_path / "p.npz", arrays, "filenames"))
    assert images.items == ["obj1__0.png", "obj1__355.png"]
    assert images.angles is not None
    assert images.angles.tolist() == [0, 355]


def test_equal_names_in_both_parts_have_different_prefixes(tmp_path: Path, pack_arrays: PackArrays) -> None:
    arrays = pack_arrays([0, 0]) | {"filenames": np.array([b"x", b"x"])}
    assert read_pack(save(tmp_path / "p.npz", arrays)).items == ["train/ant/x", "test/ant/x"]


def test_bytes_before_the_first_and_after_the_last_image_are_ignored(tmp_path: Path, pack_arrays: PackArrays) -> None:
    arrays = pack_arrays([0, 1])
    padded = {"data": np.concatenate([[7], arrays["data"], [7]]).astype(np.uint8), "offsets": arrays["offsets"] + 1}
    images = read_pack(save(tmp_path / "p.npz", arrays | padded))
    assert [grey(images.image(index)) for index in range(2)] == [0, 10]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros(9)}, r"data is float64 of shape \(9,\); expected uint8"),
        ({"data": np.zeros((3, 3), np.uint8)}, r"data is uint8 of shape \(3, 3\); expected uint8 in one dimension"),
        ({"data": np.zeros(9, np.uint8)}, "offsets; expected ascending values from 0 to 9"),
        ({"offsets": np.array([0, 5])}, "2 offsets for 3 labels; expected 4"),
        ({"offsets": np.array([0, 9, 8, 12])}, "offsets; expected ascending values"),
        ({"offsets": np.array([-1, 2, 8, 12])}, "offsets; expected ascending values"),
        ({"offsets": np.array([0.0, 2.0, 8.0, 12.0])}, "offsets is float64 .* expected integers"),
        ({"labels": np.array([0, 1, 2])}, "label of image 2 is 2; expected 0 to 1"),
        ({"labels": np.array([0, -1, 1])}, r"label of image 1 is -1; expected 0 to 1 \(1 such\)"),
        ({"labels": np.array(["a", "b", "c"])}, "labels is <U1 .* expected integers"),
        (
            {"labels": np.zeros((3, 1), np.int16)},
            r"labels is int16 of shape \(3, 1\); expected integers in 1 dimension\(s\)",
        ),
        ({"labels": np.zeros(0, np.int16)}, "holds no image; expected at least one label"),
        ({"split": np.array([0, 1, 256])}, "split has values from 0 to 256; expected 0 or 1"),
        ({"split": np.array([0, 1])}, r"split of shape \(2,\) for 3 images; expected \(3,\)"),
        ({"filenames": np.array(["a", "b"])}, "2 filenames for 3 labels; expected 3"),
        ({"filenames": np.array(["a", "b", "b"])}, "occurs 2 times; expected unique items"),
        ({"class_names": np.array([1, 2])}, "class_names is int64 .* expected strings"),
        ({"orig_size": np.array([1, 2, 3])}, "orig_size is int64 .* expected integers in 2"),
        ({"orig_size": np.zeros((2, 2), np.int16)}, r"sizes of shape \(2, 2\) for 3 images; expected \(3, 2\)"),
        ({"class_names": np.array(["ant", None])}, "cannot be read: Object arrays"),
    ],
)
def test_bad_packs_give_one_line(
    tmp_path: Path, pack_arrays: PackArrays, changes: dict[str, Any], message: str
) -> None:
    arrays = pack_arrays([0, 1, 1]) | {"split": np.zeros(3, np.uint8)} | changes
    path = save(tmp_path / "p.npz", arrays)
    with pytest.raises(ValueError, match=message) as caught:
        read_pack(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_other_files_are_rejected(tmp_path: Path, pack_arrays: PackArrays) -> None:
    with pytest.raises(ValueError, match=r"gone\.npz: .*; expected an image archive \(\.npz\)"):
        read_pack(tmp_path / "gone.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz: .*pickled"):
        read_pack(tmp_path / "text.npz")
    content = save(tmp_path / "cut.npz", pack_arrays([0, 1])).read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cut\.npz: .*not a zip file"):
        read_pack(tmp_path / "cut.npz")
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(ValueError, match=r"array\.npz: .*; expected an archive of arrays"):
        read_pack(tmp_path / "array.npz")
    save(tmp_path / "features.npz", {"features": np.zeros((2, 2)), "labels": np.zeros(2)})
    with pytest.raises(ValueError, match="data, offsets, class_names; expected an image archive"):
        read_pack(tmp_path / "features.npz")


def test_packs_of_one_data_set_are_joined(tmp_path: Path, pack_arrays: PackArrays) -> None:
    names = ["a", "b", "c"]
    first = read_pack(save(tmp_path / "1.npz", pack_arrays([0, 1], names)))
    second = read_pack(save(tmp_path / "2.npz", pack_arrays([2, 2, 2], names, first=100)))
    joined = join_packs([first, second], "joined")
    assert [grey(joined.image(index)) for index in range(5)] == [0, 10, 100, 110, 120]
    assert joined.labels.tolist() == [0, 1, 2, 2, 2]
    assert joined.split.tolist() == [0, 1, 0, 1, 0]
    assert joined.items[:3] == ["a/0.png", "b/1.png", "c/0.png"]
    assert joined.sizes is not None
    assert joined.sizes[:, 0].tolist() == [60, 61, 60, 61, 62]
    assert joined.name == "joined"
    without_sizes = read_pack(save(tmp_path / "3.npz", pack_arrays([2], names), "orig_size"))
    assert join_packs([first, without_sizes], "joined").sizes is None
    assert join_packs([first], "single").items == first.items


def test_packs_of_different_data_sets_are_rejected(tmp_path: Path, pack_arrays: PackArrays) -> None:
    first = read_pack(save(tmp_path / "1.npz", pack_arrays([0, 1])))
    overlapping = read_pack(save(tmp_path / "2.npz", pack_arrays([0])))
    other = read_pack(save(tmp_path / "3.npz", pack_arrays([0], ["cat"])))
    with pytest.raises(ValueError, match=r"2.npz and .*1.npz .* 'ant/0.png'; expected parts without overlap"):
        join_packs([first, overlapping], "joined")
    with pytest.raises(ValueError, match=r"3.npz and .*1.npz .*; expected parts of one data set"):
        join_packs([first, other], "joined")
