"""Folders of images: each folder on the first level is a class."""

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.data.images import list_images
from entourage.data.sources import ImageFiles

_SPLITS = {"train": TRAIN, "test": TEST, "val": TEST}


def read_image_folder(folder: str | Path, *, without: Collection[str] = ()) -> ImageSet:
    """Read CLASS/IMAGE, or train/CLASS/IMAGE and test/CLASS/IMAGE; images may lie deeper in their class.

    A folder `val` beside `train` does as well as `test`. Beside both it is left out, as if it were not there: what was
    meant for choosing is neither trained on nor tested with. Who wants it reads that folder by itself.

    Args:
        folder: where the classes or the parts are.
        without: names of folders that are no class.

    Returns:
        The images, sorted by path; the classes, sorted by name. Items are paths below `folder`. No image is opened.

    Raises:
        ValueError: the folder is missing, holds no image, or an image lies outside all classes.
    """
    root = Path(folder)
    paths = [path for path in list_images(root) if path.relative_to(root).parts[0] not in without]
    if not paths:
        raise ValueError(f"folder {root} holds no image but those of {', '.join(sorted(without))}")
    parts = [path.relative_to(root).parts for path in paths]
    tops = {names[0] for names in parts if len(names) > 1}
    has_split = "train" in tops and tops <= _SPLITS.keys()
    if has_split and {"test", "val"} <= tops:
        kept = [place for place, names in enumerate(parts) if names[0] != "val"]
        paths, parts = [paths[place] for place in kept], [parts[place] for place in kept]
    depth = 1 if has_split else 0
    for path, names in zip(paths, parts, strict=True):
        if len(names) < depth + 2:
            expected = "train/CLASS/IMAGE" if has_split else "CLASS/IMAGE"
            raise ValueError(f"{path} is in no class; expected images as {root}/{expected}")
    classes = [names[depth] for names in parts]
    class_names = sorted(set(classes))
    number = {name: label for label, name in enumerate(class_names)}
    return ImageSet(
        name=str(root),
        source=ImageFiles(paths),
        labels=np.array([number[name] for name in classes], dtype=np.int64),
        class_names=class_names,
        split=np.array([_SPLITS[names[0]] if has_split else TRAIN for names in parts], dtype=np.uint8),
        items=["/".join(names) for names in parts],
    )


def read_caltech101(folder: str | Path) -> ImageSet:
    """Read Caltech-101's own folders, 101_ObjectCategories/CLASS/image_0001.jpg; it has no official split.

    The clutter in BACKGROUND_Google is no class.

    Args:
        folder: the one that holds 101_ObjectCategories.
    """
    return read_image_folder(Path(folder) / "101_ObjectCategories", without={"BACKGROUND_Google"})


def files_below(root: Path, items: Sequence[str]) -> ImageFiles:
    """The files that a list of images names; a list from a stranger must not lead out of its folder.

    Raises:
        ValueError: a name is absolute, or goes up.
    """
    for item in items:
        if PurePosixPath(item).is_absolute() or ".." in PurePosixPath(item).parts:
            raise ValueError(f"{root}: the list of images names {item!r}; expected a path below that folder")
    return ImageFiles([root / item for item in items])
