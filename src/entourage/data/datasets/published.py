"""Readers of data sets in the layouts in which they are published.

CUB-200-2011, Stanford Online Products and COIL-100 have their labels in text files or file names, Cars-196 in MATLAB
files (in two layouts), and CIFAR-10 in batches (in a binary and a Python version).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.datasets.folders import files_below
from entourage.data.image_set import TEST, TRAIN, ImageFiles, ImageSet, RawImages
from entourage.data.media import list_images
from entourage.io.files import error_reason
from entourage.io.safe_formats import read_plain_pickle

_COIL_NAME = re.compile(r"obj(\d+)__(\d+)")


def read_cub200(folder: str | Path) -> ImageSet:
    """Read CUB-200-2011: images.txt, image_class_labels.txt, classes.txt, train_test_split.txt and images/.

    Args:
        folder: the folder of these files, usually named CUB_200_2011.

    Returns:
        The images in the order of images.txt, with the official split. No image is opened.

    Raises:
        ValueError: a file is missing or a line is invalid; the message names the line and the expected content.
    """
    root = Path(folder)
    names = dict(_read_lines(root / "images.txt", 2))
    numbers = _numbers(root / "image_class_labels.txt")
    is_train = _numbers(root / "train_test_split.txt")
    classes = dict(_read_lines(root / "classes.txt", 2))
    labels = {number: label for label, number in enumerate(classes)}
    for path, known in (("image_class_labels.txt", numbers), ("train_test_split.txt", is_train)):
        missing = next((key for key in names if key not in known), None)
        if missing is not None:
            raise ValueError(f"{root / path}: no line for image {missing}; expected all images of images.txt")
    unknown = next((key for key in names if str(numbers[key]) not in labels), None)
    if unknown is not None:
        raise ValueError(f"{root}: image {unknown} is of class {numbers[unknown]}; expected a class of classes.txt")
    items = list(names.values())
    return ImageSet(
        name=str(root),
        source=files_below(root / "images", items),
        labels=np.array([labels[str(numbers[key])] for key in names], dtype=np.int64),
        class_names=list(classes.values()),
        split=np.array([TRAIN if is_train[key] else TEST for key in names], dtype=np.uint8),
        items=items,
    )


def read_sop(folder: str | Path) -> ImageSet:
    """Read Stanford Online Products: Ebay_train.txt, Ebay_test.txt and the folders of images that they name.

    Args:
        folder: the folder of these files, usually named Stanford_Online_Products.

    Returns:
        The training images, then the test images; no class is in both parts. No image is opened.

    Raises:
        ValueError: a file is missing or a line is invalid; the message names the line and the expected content.
    """
    root = Path(folder)
    items: list[str] = []
    classes: list[int] = []
    split: list[int] = []
    for file, part in (("Ebay_train.txt", TRAIN), ("Ebay_test.txt", TEST)):
        path = root / file
        for line, cells in enumerate(_read_lines(path, 4, header=True), start=2):
            if not cells[1].isdecimal():
                raise ValueError(f"{path}: line {line}: the class is {cells[1]!r}; expected a number")
            classes.append(int(cells[1]))
            items.append(cells[3])
            split.append(part)
    numbers, labels = np.unique(np.array(classes, dtype=np.int64), return_inverse=True)
    return ImageSet(
        name=str(root),
        source=files_below(root, items),
        labels=labels.astype(np.int64),
        class_names=[str(number) for number in numbers.tolist()],
        split=np.array(split, dtype=np.uint8),
        items=items,
    )


def read_coil100(folder: str | Path) -> ImageSet:
    """Read COIL-100: obj1__0.png to obj100__355.png, named by object and viewing angle; there is no official split.

    Args:
        folder: the folder of the images, usually named coil-100.

    Returns:
        The images, sorted by object and angle. Other files are ignored. No image is opened.

    Raises:
        ValueError: the folder contains no image with such a name.
    """
    root = Path(folder)
    named = [(path, _COIL_NAME.fullmatch(path.stem)) for path in list_images(root) if path.parent == root]
    views = sorted((int(match[1]), int(match[2]), path) for path, match in named if match)
    if not views:
        raise ValueError(f"folder {root} holds no image of COIL-100; expected names such as obj1__0.png")
    numbers, labels = np.unique([number for number, _, _ in views], return_inverse=True)
    return ImageSet(
        name=str(root),
        source=ImageFiles([path for _, _, path in views]),
        labels=labels.astype(np.int64),
        class_names=[f"obj{number}" for number in numbers.tolist()],
        split=np.zeros(len(views), dtype=np.uint8),
        items=[path.name for _, _, path in views],
        angles=np.array([angle for _, angle, _ in views], dtype=np.int64),
    )


def _read_lines(path: Path, columns: int, *, header: bool = False) -> list[list[str]]:
    """Return the cells of each line, which are separated by spaces; the last cell may contain spaces."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}; expected a text file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); expected a text file") from error
    lines = [line.split(maxsplit=columns - 1) for line in text.rstrip().splitlines()][int(header) :]
    if not lines:
        raise ValueError(f"{path}: empty; expected lines of {columns} columns")
    for number, cells in enumerate(lines, start=1 + int(header)):
        if len(cells) != columns:
            raise ValueError(f"{path}: line {number} has {len(cells)} columns; expected {columns}")
        cells[-1] = cells[-1].rstrip()
    return lines


def _numbers(path: Path) -> dict[str, int]:
    """Read a text file whose lines consist of a key and a number, and return the numbers by key."""
    numbers: dict[str, int] = {}
    for line, (key, value) in enumerate(_read_lines(path, 2), start=1):
        if not value.isdecimal():
            raise ValueError(f"{path}: line {line}: {value!r}; expected a number")
        numbers[key] = int(value)
    return numbers


def read_cars196(folder: str | Path) -> ImageSet:
    """Read Cars-196 in the layout with one table: cars_annos.mat has path, class and split of all images in car_ims/.

    Args:
        folder: the folder of cars_annos.mat and car_ims/.

    Returns:
        All images, with the official split. No image is opened.

    Raises:
        ValueError: a file is missing or has another format.
    """
    root = Path(folder)
    path = root / "cars_annos.mat"
    table = _read_mat(path)
    files, classes = _column(path, table, "relative_im_path"), _column(path, table, "class")
    is_test = _column(path, table, "test").astype(np.int64)
    items = files.tolist()
    return _image_set(root, items, classes, is_test, _class_names(path, table))


def read_cars196_devkit(folder: str | Path) -> ImageSet:
    """Read Cars-196 in the layout with a devkit: tables in devkit/, images in cars_train/ and cars_test/.

    The tables are cars_meta.mat, cars_train_annos.mat and cars_test_annos_withlabels.mat. The last one was published
    later; it may lie in devkit/ or next to it.

    Args:
        folder: the folder that contains devkit/, cars_train/ and cars_test/.

    Returns:
        The training images, then the test images. No image is opened.

    Raises:
        ValueError: a file is missing or has another format.
    """
    root = Path(folder)
    labelled = "cars_test_annos_withlabels.mat"
    test_path = root / labelled if (root / labelled).is_file() else root / "devkit" / labelled
    items: list[str] = []
    classes: list[NDArray[Any]] = []
    split: list[int] = []
    train_path = root / "devkit" / "cars_train_annos.mat"
    for path, part, images in ((train_path, TRAIN, "cars_train"), (test_path, TEST, "cars_test")):
        table = _read_mat(path)
        files = _column(path, table, "fname").tolist()
        items += [f"{images}/{file}" for file in files]
        classes.append(_column(path, table, "class"))
        split += [part] * len(files)
    meta = root / "devkit" / "cars_meta.mat"
    names = _class_names(meta, _read_mat(meta))
    return _image_set(root, items, np.concatenate(classes), np.array(split, dtype=np.int64), names)


def _image_set(
    root: Path, items: list[str], classes: NDArray[Any], is_test: NDArray[np.int64], names: list[str]
) -> ImageSet:
    return ImageSet(
        name=str(root),
        source=files_below(root, items),
        labels=classes.astype(np.int64) - 1,  # indices of MATLAB start at 1
        class_names=names,
        split=(is_test != 0).astype(np.uint8),
        items=items,
    )


def _read_mat(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected the annotations of Cars-196")
    from scipy.io import loadmat  # a slow import that only Cars-196 requires

    try:
        return dict(loadmat(path, squeeze_me=True))
    # SciPy raises many types of errors on damaged files, and NotImplementedError on HDF5 files.
    except Exception as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}; expected a MATLAB file") from error


def _column(path: Path, table: dict[str, Any], name: str) -> NDArray[Any]:
    annotations = np.atleast_1d(table.get("annotations", np.empty(0)))
    if annotations.dtype.names is None or name not in annotations.dtype.names:
        fields = annotations.dtype.names or "nothing"
        raise ValueError(f"{path}: the fields of 'annotations' are {fields}; expected {name!r}")
    cells = annotations[name].tolist()
    kind: type = str if name in ("fname", "relative_im_path") else int
    if not cells or not all(isinstance(cell, kind) for cell in cells):
        raise ValueError(f"{path}: field {name!r} of 'annotations' has other types; expected {kind.__name__} only")
    return np.array(cells)


def _class_names(path: Path, table: dict[str, Any]) -> list[str]:
    names = np.atleast_1d(table.get("class_names", np.empty(0))).tolist()
    if not names or not all(isinstance(name, str) for name in names):
        variables = ", ".join(key for key in table if key[0] != "_")
        raise ValueError(f"{path}: the variables are {variables}; expected 'class_names', an array of strings")
    return [str(name) for name in names]


_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BATCHES = [*((f"data_batch_{number}", TRAIN) for number in range(1, 6)), ("test_batch", TEST)]

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_cifar10_binary(folder: str | Path) -> ImageSet:
    """Read the binary version of CIFAR-10: data_batch_1.bin to data_batch_5.bin and test_batch.bin.

    Args:
        folder: the folder of the batches, usually named cifar-10-batches-bin.

    Returns:
        The 50,000 training images, then the 10,000 test images.

    Raises:
        ValueError: a batch is missing or has another format.
    """
    return _join(Path(folder), ".bin", _read_binary)


def read_cifar10_python(folder: str | Path) -> ImageSet:
    """Read the Python version of CIFAR-10: data_batch_1 to data_batch_5 and test_batch.

    The batches are pickles; they are read without executing code, see `read_plain_pickle`.

    Args:
        folder: the folder of the batches, usually named cifar-10-batches-py.

    Returns:
        The same images as `read_cifar10_binary`, in the same order.

    Raises:
        ValueError: a batch is missing, has another format, or contains other objects than arrays, lists and strings.
    """
    return _join(Path(folder), "", _read_python)


def _join(folder: Path, suffix: str, read: Callable[[Path], Batch]) -> ImageSet:
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    split: list[NDArray[np.uint8]] = []
    for name, part in _BATCHES:
        path = folder / (name + suffix)
        if not path.is_file():
            raise ValueError(f"{path}: no such file; expected all six batches of CIFAR-10")
        batch, classes = read(path)
        if len(classes) and not 0 <= classes.min() <= classes.max() < len(_CLASSES):
            raise ValueError(f"{path}: labels from {classes.min()} to {classes.max()}; expected 0 to 9")
        pixels.append(batch)
        labels.append(classes)
        split.append(np.full(len(batch), part, dtype=np.uint8))
    values = np.concatenate(pixels).reshape(-1, *_SHAPE)  # (n, 3072) -> (n, 3, 32, 32)
    parts = np.concatenate(split)
    n_train = int((parts == TRAIN).sum())
    train_items = [f"train/{index:05d}" for index in range(n_train)]
    test_items = [f"test/{index:05d}" for index in range(len(parts) - n_train)]
    return ImageSet(
        name=str(folder),
        source=RawImages(values, np.arange(len(values))),
        labels=np.concatenate(labels),
        class_names=list(_CLASSES),
        split=parts,
        items=train_items + test_items,
    )


def _read_binary(path: Path) -> Batch:
    try:
        records = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    if len(records) == 0 or len(records) % (1 + _PIXELS):
        raise ValueError(f"{path}: {len(records)} bytes; expected a multiple of {1 + _PIXELS}, label and pixels")
    records = records.reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _read_python(path: Path) -> Batch:
    entries = read_plain_pickle(path)
    pixels, labels = entries.get("data"), entries.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
        raise ValueError(f"{path}: 'data' is missing or invalid; expected an array of shape (n, {_PIXELS})")
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 256 for label in labels):
        raise ValueError(f"{path}: 'labels' is missing or invalid; expected a list of integers from 0 to 9")
    if len(labels) != len(pixels):
        raise ValueError(f"{path}: {len(labels)} labels for {len(pixels)} images; expected {len(pixels)}")
    return pixels, np.array(labels, dtype=np.int64)
