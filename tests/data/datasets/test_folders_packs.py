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


def test_a_pack_is_read_whole(tmp_path: Path, pack_arrays: PackArrays) -> None:
    path = save(tmp_path / "p.npz", pack_arrays([0, 1, 1]))
    images = read_pack(path)
    assert [grey(images.image(place)) for place in range(3)] == [0, 10, 20]
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


def test_what_is_optional_may_be_absent(tmp_path: Path, pack_arrays: PackArrays) -> None:
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


def test_one_name_in_both_parts_is_told_apart(tmp_path: Path, pack_arrays: PackArrays) -> None:
    arrays = pack_arrays([0, 0]) | {"filenames": np.array([b"x", b"x"])}
    assert read_pack(save(tmp_path / "p.npz", arrays)).items == ["train/ant/x", "test/ant/x"]


def test_bytes_before_between_and_after_images_are_allowed_only_at_the_ends(
    tmp_path: Path, pack_arrays: PackArrays
) -> None:
    arrays = pack_arrays([0, 1])
    padded = {"data": np.concatenate([[7], arrays["data"], [7]]).astype(np.uint8), "offsets": arrays["offsets"] + 1}
    images = read_pack(save(tmp_path / "p.npz", arrays | padded))
    assert [grey(images.image(place)) for place in range(2)] == [0, 10]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros(9)}, r"data is float64 of shape \(9,\); expected uint8"),
        ({"data": np.zeros((3, 3), np.uint8)}, r"data is uint8 of shape \(3, 3\)"),
        ({"data": np.zeros(9, np.uint8)}, "the offsets do not rise from 0 to the 9 bytes"),
        ({"offsets": np.array([0, 5])}, "2 offsets for 3 labels; expected 4"),
        ({"offsets": np.array([0, 9, 8, 12])}, "the offsets do not rise"),
        ({"offsets": np.array([-1, 2, 8, 12])}, "the offsets do not rise"),
        ({"offsets": np.array([0.0, 2.0, 8.0, 12.0])}, "offsets is float64 .* expected integers"),
        ({"labels": np.array([0, 1, 2])}, "label of image 2 is 2; expected 0 to 1"),
        ({"labels": np.array([0, -1, 1])}, "label of image 1 is -1"),
        ({"labels": np.array(["a", "b", "c"])}, "labels is <U1 .* expected integers"),
        ({"labels": np.zeros((3, 1), np.int16)}, r"labels is int16 of shape \(3, 1\)"),
        ({"labels": np.zeros(0, np.int16)}, "holds no image"),
        ({"split": np.array([0, 1, 256])}, "split has values from 0 to 256; expected 0 or 1"),
        ({"split": np.array([0, 1])}, r"split of shape \(2,\) for 3 images"),
        ({"filenames": np.array(["a", "b"])}, "2 filenames for 3 labels"),
        ({"filenames": np.array(["a", "b", "b"])}, "item 'train/bee/b'|item 'bee/b'|occurs 2 times"),
        ({"class_names": np.array([1, 2])}, "class_names is int64 .* expected texts"),
        ({"orig_size": np.array([1, 2, 3])}, "orig_size is int64 .* expected integers in 2"),
        ({"orig_size": np.zeros((2, 2), np.int16)}, r"sizes of shape \(2, 2\) for 3 images"),
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


def test_other_files_are_no_packs(tmp_path: Path, pack_arrays: PackArrays) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_pack(tmp_path / "gone.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="cannot be read"):
        read_pack(tmp_path / "text.npz")
    whole = save(tmp_path / "cut.npz", pack_arrays([0, 1])).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be read"):
        read_pack(tmp_path / "cut.npz")
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(ValueError, match="a single array"):
        read_pack(tmp_path / "array.npz")
    save(tmp_path / "features.npz", {"features": np.zeros((2, 2)), "labels": np.zeros(2)})
    with pytest.raises(ValueError, match="not a pack of images, it has no data, offsets, class_names"):
        read_pack(tmp_path / "features.npz")


def test_parts_are_joined_with_labels_counting_on(tmp_path: Path, pack_arrays: PackArrays) -> None:
    names = ["a", "b", "c"]
    first = read_pack(save(tmp_path / "1.npz", pack_arrays([0, 1], names)))
    second = read_pack(save(tmp_path / "2.npz", pack_arrays([2, 2, 2], names, first=100)))
    whole = join_packs([first, second], "whole")
    assert [grey(whole.image(place)) for place in range(5)] == [0, 10, 100, 110, 120]
    assert whole.labels.tolist() == [0, 1, 2, 2, 2]
    assert whole.split.tolist() == [0, 1, 0, 1, 0]
    assert whole.items[:3] == ["a/0.png", "b/1.png", "c/0.png"]
    assert whole.sizes is not None
    assert whole.sizes[:, 0].tolist() == [60, 61, 60, 61, 62]
    assert whole.name == "whole"
    bare = read_pack(save(tmp_path / "3.npz", pack_arrays([2], names), "orig_size"))
    assert join_packs([first, bare], "whole").sizes is None
    assert join_packs([first], "alone").items == first.items


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path, pack_arrays: PackArrays) -> None:
    first = read_pack(save(tmp_path / "1.npz", pack_arrays([0, 1])))
    again = read_pack(save(tmp_path / "2.npz", pack_arrays([0])))
    other = read_pack(save(tmp_path / "3.npz", pack_arrays([0], ["cat"])))
    with pytest.raises(ValueError, match=r"2.npz and .*1.npz both hold 'ant/0.png'"):
        join_packs([first, again], "whole")
    with pytest.raises(ValueError, match=r"3.npz and .*1.npz name different classes"):
        join_packs([first, other], "whole")
