from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.data.datasets.registry import DATASET_NAMES, find_dataset, read_image_set

PackArrays = Callable[..., dict[str, Any]]
SaveGrey = Callable[[Path, int], Path]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTOURAGE_DATA", raising=False)


def lay_out(name: str, folder: Path, save_grey: SaveGrey) -> None:
    """Write the smallest official layout of a data set."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "cifar10":
        for batch in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            (folder / f"{batch}.bin").write_bytes(bytes(3073))
    elif name == "caltech101":
        save_grey(folder / "101_ObjectCategories" / "ant" / "image_0001.jpg", 0)
    elif name == "cub200":
        (folder / "images.txt").write_text("1 a.jpg\n2 b.jpg\n")
        (folder / "image_class_labels.txt").write_text("1 1\n2 2\n")
        (folder / "train_test_split.txt").write_text("1 0\n2 1\n")
        (folder / "classes.txt").write_text("1 ant\n2 bee\n")
    elif name == "cars196":
        save_grey(folder / "train" / "ant" / "1.jpg", 0)
        save_grey(folder / "train" / "bee" / "1.jpg", 0)
    elif name == "sop":
        (folder / "Ebay_train.txt").write_text("image_id class_id super_class_id path\n1 1 1 a.JPG\n")
        (folder / "Ebay_test.txt").write_text("image_id class_id super_class_id path\n2 2 1 b.JPG\n")
    elif name == "coil100":
        save_grey(folder / "obj1__0.png", 0)


FOLDERS = {
    "cifar10": "cifar-10-batches-bin",
    "caltech101": "caltech-101",
    "cub200": "CUB_200_2011",
    "cars196": "stanford_cars",
    "sop": "Stanford_Online_Products",
    "coil100": "coil-100",
}
EXPECTED = {"cifar10": 6, "caltech101": 1, "cub200": 2, "cars196": 2, "sop": 2, "coil100": 1}


@pytest.mark.parametrize("name", [name for name in DATASET_NAMES if name != "cars196"])  # here CLASS/IMAGE, no layout
def test_a_folder_in_an_official_layout_needs_no_name(tmp_path: Path, save_grey: SaveGrey, name: str) -> None:
    lay_out(name, tmp_path / "any name", save_grey)
    images = read_image_set(tmp_path / "any name")
    assert images.name == name
    assert len(images) == EXPECTED[name]


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_official_layouts_are_found(tmp_path: Path, save_grey: SaveGrey, name: str) -> None:
    lay_out(name, tmp_path / FOLDERS[name], save_grey)
    images = find_dataset(name, tmp_path)
    assert images.name == name
    assert len(images) == EXPECTED[name]
    if name in ("cub200", "cars196"):
        assert images.split.tolist() == images.labels.tolist() == [0, 1]  # replaces the official split
    if name != "cars196":  # a file identifies the layout, so that the folder itself may be the root
        assert find_dataset(name, tmp_path / FOLDERS[name]).items == images.items


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_packs_are_found_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack_arrays: PackArrays, name: str
) -> None:
    names = ["a", "b", "c", "d"]
    np.savez(tmp_path / f"{name}_classes3-4.npz", **pack_arrays([2, 3, 3], names, first=100))
    np.savez(tmp_path / f"{name}_classes1-2.npz", **pack_arrays([0, 1], names))
    np.savez(tmp_path / "other.npz", **pack_arrays([0]))
    np.savez(tmp_path / f"{name}0.npz", **pack_arrays([0]))
    monkeypatch.setenv("ENTOURAGE_DATA", str(tmp_path))
    images = find_dataset(name)
    assert images.labels.tolist() == [0, 1, 2, 3, 3]
    assert np.asarray(images.image(2))[0, 0, 0] == 100
    zero_shot = name in ("cub200", "cars196")
    assert images.split.tolist() == ([0, 0, 1, 1, 1] if zero_shot else [0, 1, 0, 1, 0])


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_a_missing_data_set_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for root, environment, problem in (
        (None, None, "ENTOURAGE_DATA is not set"),
        (None, "", "ENTOURAGE_DATA is not set"),
        (None, str(tmp_path), f"missing from {tmp_path}"),
        (tmp_path, None, f"missing from {tmp_path}"),
        (None, str(tmp_path / "gone"), f"{tmp_path / 'gone'} (ENTOURAGE_DATA) does not exist"),
        (tmp_path / "gone", None, f"{tmp_path / 'gone'} (root) does not exist"),
    ):
        if environment is None:
            monkeypatch.delenv("ENTOURAGE_DATA", raising=False)
        else:
            monkeypatch.setenv("ENTOURAGE_DATA", environment)
        with pytest.raises(ValueError, match=f"data set '{name}'") as caught:
            find_dataset(name, root)
        message = str(caught.value)
        assert problem in message
        assert "from https://" in message
        assert "\n" not in message
        if "missing from" in problem:
            assert FOLDERS[name] in message
            assert f"{name}*.npz" in message


def test_unknown_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data set 'mnist' is unknown; expected cifar10, caltech101"):
        find_dataset("mnist", tmp_path)


def test_the_official_layout_takes_precedence_over_packs_and_packs_over_class_folders(
    tmp_path: Path, save_grey: SaveGrey, pack_arrays: PackArrays
) -> None:
    save_grey(tmp_path / "caltech101" / "cat" / "1.jpg", 0)
    assert find_dataset("caltech101", tmp_path).class_names == ["cat"]
    np.savez(tmp_path / "caltech101.npz", **pack_arrays([0, 1]))
    assert find_dataset("caltech101", tmp_path).class_names == ["ant", "bee"]
    lay_out("caltech101", tmp_path / "caltech101", save_grey)
    assert find_dataset("caltech101", tmp_path).class_names == ["ant"]


def test_cifar10_in_python_batches_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match=r"data_batch_1: .* os\.system is not allowed"):
        find_dataset("cifar10", tmp_path)


def test_half_of_a_zero_shot_set_is_rejected(tmp_path: Path, pack_arrays: PackArrays) -> None:
    np.savez(tmp_path / "cub200_1.npz", **pack_arrays([0, 0], ["a", "b"]))
    with pytest.raises(ValueError, match=r"cub200: .*cub200_1\.npz .*; expected both halves"):
        find_dataset("cub200", tmp_path)


def test_any_pack_or_folder_is_read(tmp_path: Path, save_grey: SaveGrey, pack_arrays: PackArrays) -> None:
    np.savez(tmp_path / "p.npz", **pack_arrays([0, 1]))
    assert read_image_set(tmp_path / "p.npz").class_names == ["ant", "bee"]
    save_grey(tmp_path / "f" / "cat" / "1.png", 0)
    assert read_image_set(str(tmp_path / "f")).class_names == ["cat"]
    for path, message in (
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "gone.npz", "no such file; expected an image archive"),
        (save_grey(tmp_path / "x.png", 0), r"unknown suffix '\.png'; expected an image archive"),
    ):
        with pytest.raises(ValueError, match=message):
            read_image_set(path)


def test_a_tilde_in_the_environment_variable_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_grey: SaveGrey
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENTOURAGE_DATA", "~/sets")
    lay_out("coil100", tmp_path / "sets" / "coil-100", save_grey)
    assert find_dataset("coil100").items == ["obj1__0.png"]
