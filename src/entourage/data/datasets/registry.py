"""Published data sets by name, read from packs or official layouts below the folder in `ENTOURAGE_DATA`."""

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
    """Description of a published data set: where it is found and how it is read.

    Attributes:
        title: full name.
        homepage: address of the download page.
        folders: possible names of its folder, the official one first.
        layouts: official layouts: for each, a file or folder that identifies it, and its reader.
        zero_shot: whether to train on the first half of the classes and to test on the second, the standard protocol in
            retrieval.
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

    `root` and its folders with a known name of the data set are searched: first for an official layout, then for packs
    NAME*.npz (the parts of a data set are joined), then, only in the folders of the data set, for CLASS/IMAGE.

    Args:
        name: one of `DATASET_NAMES`.
        root: folder of the data sets; None: the folder in the environment variable ENTOURAGE_DATA.

    Returns:
        The images with the official split. For `cub200` and `cars196`, the first half of the classes is for training
        and the second for testing, the standard protocol in retrieval. Without an official split, all are for training.

    Raises:
        ValueError: the name is unknown, the data set is missing, or a file has another format. The message is one line;
            for a missing data set it names the searched folders and the download page.
    """
    dataset = _DATASETS.get(name)
    if dataset is None:
        raise ValueError(f"data set {name!r} is unknown; expected {', '.join(DATASET_NAMES)}")
    images = _read_first(name, dataset, _data_root(name, dataset, root))
    if dataset.zero_shot:
        split = (images.labels >= len(images.class_names) // 2).astype(np.uint8)
        if len(np.unique(split)) < 2:
            raise ValueError(f"{name}: {images.name} has images of one half of the classes only; expected both halves")
        images = replace(images, split=split)
    return replace(images, name=name)


def read_image_set(path: str | Path) -> ImageSet:
    """Read an image set: an image archive (`.npz`), or a folder CLASS/IMAGE, possibly below train/ and test/.

    A folder in the official layout of one of `DATASET_NAMES` is read as `find_dataset` reads it.

    Args:
        path: the pack or the folder.

    Returns:
        The images.

    Raises:
        ValueError: the path is missing or contains no image set; the message is one line with the path and the problem.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() != ".npz":
        raise ValueError(
            f"{path}: unknown suffix {path.suffix!r}; expected an image archive (.npz) or a folder of images"
        )
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
        # A letter or digit after the name belongs to another name: cifar100.npz is not a pack of cifar10.
        packs = sorted(pack for pack in folder.glob(f"{name}*.npz") if not pack.stem.removeprefix(name)[:1].isalnum())
        if packs:
            return join_packs([read_pack(pack) for pack in packs], ", ".join(map(str, packs)))
    for folder in folders[1:]:
        if folder.is_dir() and any(child.is_dir() for child in folder.iterdir()):
            return read_image_folder(folder)
    raise ValueError(
        f"data set {name!r} is missing from {root} and its folders {', '.join(dataset.folders)};"
        f" expected {_expected(name, dataset)} from {dataset.homepage} ({dataset.title})"
    )


def _data_root(name: str, dataset: _Dataset, root: str | Path | None) -> Path:
    chosen = os.environ.get("ENTOURAGE_DATA") if root is None else root
    if not chosen:
        raise ValueError(
            f"data set {name!r}: ENTOURAGE_DATA is not set; expected the folder that contains {dataset.folders[0]} or"
            f" {name}*.npz from {dataset.homepage} ({dataset.title})"
        )
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        origin = "ENTOURAGE_DATA" if root is None else "root"
        raise ValueError(
            f"data set {name!r}: the folder {folder} ({origin}) does not exist; expected the folder that contains"
            f" {dataset.folders[0]} or {name}*.npz from {dataset.homepage} ({dataset.title})"
        )
    return folder


def _expected(name: str, dataset: _Dataset) -> str:
    markers = ", ".join(marker for marker, _ in dataset.layouts)
    return f"{markers}, {name}*.npz or folders of classes"
