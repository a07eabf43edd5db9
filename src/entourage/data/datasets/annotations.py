"""Official layouts whose labels are in text files or file names: CUB-200-2011, Stanford Online Products, COIL-100."""

import re
from pathlib import Path

import numpy as np

from entourage.data.datasets.folders import files_below
from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.data.images import list_images
from entourage.data.sources import ImageFiles

_COIL_NAME = re.compile(r"obj(\d+)__(\d+)")


def read_cub200(folder: str | Path) -> ImageSet:
    """Read CUB-200-2011: images.txt, image_class_labels.txt, classes.txt, train_test_split.txt and images/.

    Args:
        folder: where they are, usually called CUB_200_2011.

    Returns:
        The images in the order of images.txt, with the official split. No image is opened.

    Raises:
        ValueError: a file is missing, or a line is wrong: which, and what was expected.
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
            raise ValueError(f"{root / path}: nothing on image {missing}, which images.txt names")
    unknown = next((key for key in names if str(numbers[key]) not in labels), None)
    if unknown is not None:
        raise ValueError(f"{root}: image {unknown} is of class {numbers[unknown]}, which classes.txt does not name")
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
        folder: where they are, usually called Stanford_Online_Products.

    Returns:
        The images, those for training first; no class is in both parts. No image is opened.

    Raises:
        ValueError: a file is missing, or a line is wrong: which, and what was expected.
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
    """Read COIL-100: obj1__0.png to obj100__355.png, the object and the angle at which it was seen; there is no split.

    Args:
        folder: where they are, usually called coil-100.

    Returns:
        The images by object and angle. Other files are passed over. No image is opened.

    Raises:
        ValueError: there is no such image.
    """
    root = Path(folder)
    named = [(path, _COIL_NAME.fullmatch(path.stem)) for path in list_images(root) if path.parent == root]
    views = sorted((int(match[1]), int(match[2]), path) for path, match in named if match)
    if not views:
        raise ValueError(f"folder {root} holds no image named as obj1__0.png")
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
    """The cells of each line, blanks between them; the last cell may hold blanks itself."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start})") from error
    lines = [line.split(maxsplit=columns - 1) for line in text.rstrip().splitlines()][int(header) :]
    if not lines:
        raise ValueError(f"{path}: empty; expected lines of {columns} columns")
    for number, cells in enumerate(lines, start=1 + int(header)):
        if len(cells) != columns:
            raise ValueError(f"{path}: line {number} has {len(cells)} columns; expected {columns}")
        cells[-1] = cells[-1].rstrip()
    return lines


def _numbers(path: Path) -> dict[str, int]:
    """A file of two columns: the number under each key."""
    found: dict[str, int] = {}
    for line, (key, value) in enumerate(_read_lines(path, 2), start=1):
        if not value.isdecimal():
            raise ValueError(f"{path}: line {line}: {value!r} is no number")
        found[key] = int(value)
    return found
