"""The data sets by name: found in packs or in their official layouts, wherever `ENTOURAGE_DATA` points."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from entourage.data.datasets.folders import join_packs, read_caltech101, read_image_folder, read_pack
from entourage.data.datasets.published import (
    read_cars196,
    read_cars196_devkit,
    read_cifar10_binary,
    read_cifar10_python,
    read_coil100,
    read_cub200,
    read_sop,
)
from entourage.data.image_set import ImageSet


@dataclass(frozen=True)
class _Dataset:
    """What is known of a data set.

    Attributes:
        title: its full name.
        homepage: where it comes from.
        folders: names that its folder goes by, the usual one first.
        layouts: official layouts, each with a file or folder that gives it away.
        zero_shot: train on the first half of the classes, test on the second, as is usual in retrieval.
    """

    title: str
    homepage: str
    folders: tuple[str, ...]
    layouts: tuple[tuple[str, Callable[[Path], ImageSet]], ...]
    zero_shot: bool = False


_DATASETS = {
    "cifar10": _Dataset(
        "CIFAR-10",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10", "cifar-10"),
        (("data_batch_1.bin", read_cifar10_binary), ("data_batch_1", read_cifar10_python)),
    ),
    "caltech101": _Dataset(
        "Caltech-101",
        "https://data.caltech.edu/records/mzrjq-6wc02",
        ("caltech-101", "caltech101", "Caltech101"),
        (("101_ObjectCategories", read_caltech101),),
    ),
    "cub200": _Dataset(
        "CUB-200-2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        ("CUB_200_2011", "cub200", "CUB-200-2011"),
        (("images.txt", read_cub200),),
        zero_shot=True,
    ),
    "cars196": _Dataset(
        "Cars-196",
        "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        ("cars196", "stanford_cars", "stanford-cars", "Cars196", "CARS196"),
        (("cars_annos.mat", read_cars196), ("devkit/cars_meta.mat", read_cars196_devkit)),
        zero_shot=True,
    ),
    "sop": _Dataset(
        "Stanford Online Products",
        "https://cvgl.stanford.edu/projects/lifted_struct/",
        ("Stanford_Online_Products", "sop", "SOP"),
        (("Ebay_train.txt", read_sop),),
    ),
    "coil100": _Dataset(
        "COIL-100",
        "https://www.cs.columbia.edu/CAVE/software/softlib/coil-100.php",
        ("coil-100", "coil100", "COIL-100"),
        (("obj1__0.png", read_coil100),),
    ),
}

DATASET_NAMES = tuple(_DATASETS)


def find_dataset(name: str, root: str | Path | None = None) -> ImageSet:
    """Find a data set and read it.

    Looked for in `root` and in the folders below it that the data set goes by: first its official layout, then packs
    named NAME*.npz (the parts of one data set are joined), then, only in folders of its own, CLASS/IMAGE.

    Args:
        name: one of `DATASET_NAMES`.
        root: where the data sets are; None: the folder in the environment variable ENTOURAGE_DATA.

    Returns:
        The images. The split is the official one, except for `cub200` and `cars196`: there, as is usual in retrieval,
        the first half of the classes is for training and the second for testing. Sets without a split have all 0.

    Raises:
        ValueError: one line: the name is unknown; the data set is missing, with where it was looked for and where it
            comes from; or a file of it is not as it should be.
    """
    dataset = _DATASETS.get(name)
    if dataset is None:
        raise ValueError(f"data set {name!r} is unknown; expected {', '.join(DATASET_NAMES)}")
    found = _read_first(name, dataset, _data_root(name, dataset, root))
    if dataset.zero_shot:
        split = (found.labels >= len(found.class_names) // 2).astype(np.uint8)
        if len(np.unique(split)) < 2:
            raise ValueError(f"{name}: {found.name} has images of one half of the classes only; expected both halves")
        found = replace(found, split=split)
    return replace(found, name=name)


def read_image_set(path: str | Path) -> ImageSet:
    """Read any image set: a pack (`.npz`), or a folder CLASS/IMAGE with or without train/ and test/ above it.

    A folder in the official layout of one of `DATASET_NAMES` is read as `find_dataset` reads it.

    Args:
        path: the pack or the folder.

    Raises:
        ValueError: one line with the path and what is wrong there.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: unknown suffix {path.suffix!r}; expected a pack (.npz) or a folder of images")
    if path.suffix.lower() == ".npz" and not path.is_dir():
        return read_pack(path)
    for name, dataset in _DATASETS.items():
        if any((path / marker).exists() for marker, _ in dataset.layouts):
            return find_dataset(name, path)
    return read_image_folder(path)


def _read_first(name: str, dataset: _Dataset, root: Path) -> ImageSet:
    folders = [root, *(root / folder for folder in dataset.folders)]
    for folder in folders:
        for marker, read in dataset.layouts:
            if (folder / marker).exists():
                return read(folder)
    for folder in folders:
        # What follows the name must not be part of it: cifar100.npz is no pack of cifar10.
        packs = sorted(pack for pack in folder.glob(f"{name}*.npz") if not pack.stem.removeprefix(name)[:1].isalnum())
        if packs:
            return join_packs([read_pack(pack) for pack in packs], ", ".join(map(str, packs)))
    for folder in folders[1:]:
        if folder.is_dir() and any(child.is_dir() for child in folder.iterdir()):
            return read_image_folder(folder)
    raise ValueError(
        f"data set {name!r} is missing: looked in {root} and there in {', '.join(dataset.folders)}"
        f" for {_expected(name, dataset)}; {dataset.title} comes from {dataset.homepage}"
    )


def _data_root(name: str, dataset: _Dataset, root: str | Path | None) -> Path:
    chosen = os.environ.get("ENTOURAGE_DATA") if root is None else root
    if not chosen:
        raise ValueError(
            f"data set {name!r} cannot be looked for: ENTOURAGE_DATA is not set; expected the folder that holds"
            f" {dataset.folders[0]} or {name}*.npz; {dataset.title} comes from {dataset.homepage}"
        )
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        origin = "ENTOURAGE_DATA" if root is None else "root"
        raise ValueError(
            f"data set {name!r} is missing: the folder {folder} ({origin}) does not exist;"
            f" {dataset.title} comes from {dataset.homepage}"
        )
    return folder


def _expected(name: str, dataset: _Dataset) -> str:
    markers = ", ".join(marker for marker, _ in dataset.layouts)
    return f"{markers}, {name}*.npz or folders of classes"
