"""Readers of image folders, with one folder per class, and of packs: image sets in one `.npz` file."""

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.image_set import TEST, TRAIN, EncodedImages, ImageFiles, ImageSet
from entourage.data.media import list_images
from entourage.io.safe_formats import read_npz

_SPLITS = {"train": TRAIN, "test": TEST, "val": TEST}


def read_image_folder(folder: str | Path, *, exclude: Collection[str] = ()) -> ImageSet:
    """Read CLASS/IMAGE, or train/CLASS/IMAGE and test/CLASS/IMAGE; images may also lie in subfolders of their class.

    If there are folders `train` and `val` but no `test`, `val` is the test set. Otherwise `val` is ignored, because
    validation images are for neither training nor testing. To use them, read the folder `val` separately.

    Args:
        folder: folder of the classes, or of train/ and test/.
        exclude: names of folders that are not classes.

    Returns:
        The images, sorted by path; classes are sorted by name. Items are paths below `folder`. No image is opened.

    Raises:
        ValueError: the folder is missing, contains no images, or an image lies outside all classes.
    """
    root = Path(folder)
    paths = [path for path in list_images(root) if path.relative_to(root).parts[0] not in exclude]
    if not paths:
        raise ValueError(f"folder {root} holds images of {', '.join(sorted(exclude))} only; expected other classes")
    parts = [path.relative_to(root).parts for path in paths]
    tops = {names[0] for names in parts if len(names) > 1}
    has_split = "train" in tops and tops <= _SPLITS.keys()
    if has_split and {"test", "val"} <= tops:
        indices = [index for index, names in enumerate(parts) if names[0] != "val"]
        paths, parts = [paths[index] for index in indices], [parts[index] for index in indices]
    depth = 1 if has_split else 0
    for path, names in zip(paths, parts, strict=True):
        if len(names) < depth + 2:
            expected = "train/CLASS/IMAGE" if has_split else "CLASS/IMAGE"
            raise ValueError(f"{path}: outside all classes; expected images as {root}/{expected}")
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
    """Read Caltech-101 in its official layout, 101_ObjectCategories/CLASS/image_0001.jpg; there is no official split.

    Args:
        folder: the folder that contains 101_ObjectCategories.

    Returns:
        The images of the 101 classes, without those of the clutter class BACKGROUND_Google. No image is opened.

    Raises:
        ValueError: see `read_image_folder`.
    """
    return read_image_folder(Path(folder) / "101_ObjectCategories", exclude={"BACKGROUND_Google"})


def files_below(root: Path, items: Sequence[str]) -> ImageFiles:
    """Return the paths of listed images after checking that they lie below a folder, because the list may be hostile.

    Args:
        root: the folder.
        items: paths of the images, relative to the folder.

    Raises:
        ValueError: a path is absolute or contains "..".
    """
    for item in items:
        if PurePosixPath(item).is_absolute() or ".." in PurePosixPath(item).parts:
            raise ValueError(f"{root}: the list of images names {item!r}; expected a path below that folder")
    return ImageFiles([root / item for item in items])


_NEEDED = ("data", "offsets", "labels", "class_names")
_OPTIONAL = ("split", "filenames", "orig_size", "angle")


def read_pack(path: str | Path) -> ImageSet:
    """Read and check a pack, an image archive in one `.npz` file.

    Its arrays are `data` (uint8, the encoded images), `offsets` (n + 1 indices into `data`), `labels` (n, from 0) and
    `class_names`, and optionally `split` (0 train, 1 test), `filenames`, `orig_size` (width and height) and `angle`.

    Args:
        path: an `.npz` file. Pickles are never loaded.

    Returns:
        The images; their bytes are in memory as one array. Items are CLASS/FILE, with the prefix `train/` or `test/` if
        a name occurs in both parts; images without file names are numbered.

    Raises:
        ValueError: the file is missing, damaged or not a valid pack; the message is one line with the path and the
            problem.
    """
    path = Path(path)
    arrays = _load(path)
    offsets = _integers(path, arrays, "offsets")
    labels = _integers(path, arrays, "labels")
    data = arrays["data"]
    n = len(labels)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError(f"{path}: data is {data.dtype} of shape {data.shape}; expected uint8 in one dimension")
    if n == 0:
        raise ValueError(f"{path}: holds no image; expected at least one label")
    if offsets.shape != (n + 1,):
        raise ValueError(f"{path}: {len(offsets)} offsets for {n} labels; expected {n + 1}")
    if offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any():
        raise ValueError(f"{path}: invalid offsets; expected ascending values from 0 to {len(data)}, the size of data")
    split = _integers(path, arrays, "split") if "split" in arrays else np.zeros(n, dtype=np.int64)
    if len(split) and (split.min() < 0 or split.max() > TEST):  # before the conversion to 8 bits
        raise ValueError(f"{path}: split has values from {split.min()} to {split.max()}; expected 0 or 1")
    class_names = _names(path, arrays, "class_names")
    return ImageSet(
        name=str(path),
        source=EncodedImages(data, offsets[:-1], offsets[1:]),
        labels=labels,
        class_names=class_names,
        split=split.astype(np.uint8),
        items=_items(path, arrays, labels, split, class_names),
        sizes=_integers(path, arrays, "orig_size", dimensions=2) if "orig_size" in arrays else None,
        angles=_integers(path, arrays, "angle") if "angle" in arrays else None,
    )


def join_packs(packs: Sequence[ImageSet], name: str) -> ImageSet:
    """Concatenate the packs into which one data set is divided.

    Args:
        packs: results of `read_pack`, at least one, all with the same class names; labels have the same meaning in all.
        name: name of the result.

    Returns:
        The images of all packs, in order.

    Raises:
        ValueError: the class names differ, or two packs contain the same item.
    """
    first = packs[0]
    sources = [pack.source for pack in packs]
    seen: dict[str, str] = {}
    for pack in packs:
        if pack.class_names != first.class_names:
            raise ValueError(f"{pack.name} and {first.name} have different classes; expected parts of one data set")
        for item in pack.items:
            if seen.setdefault(item, pack.name) != pack.name:
                raise ValueError(f"{pack.name} and {seen[item]} both contain {item!r}; expected parts without overlap")
    encoded = [source for source in sources if isinstance(source, EncodedImages)]
    shifts = np.cumsum([0, *(len(source.data) for source in encoded)])
    source = EncodedImages(
        data=np.concatenate([source.data for source in encoded]) if len(encoded) > 1 else encoded[0].data,
        starts=np.concatenate([source.starts + shift for source, shift in zip(encoded, shifts, strict=False)]),
        ends=np.concatenate([source.ends + shift for source, shift in zip(encoded, shifts, strict=False)]),
    )
    return ImageSet(
        name=name,
        source=source,
        labels=np.concatenate([pack.labels for pack in packs]),
        class_names=first.class_names,
        split=np.concatenate([pack.split for pack in packs]),
        items=[item for pack in packs for item in pack.items],
        sizes=_concatenate_if_all([pack.sizes for pack in packs]),
        angles=_concatenate_if_all([pack.angles for pack in packs]),
    )


def _load(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected an image archive (.npz)")
    arrays = read_npz(path, (*_NEEDED, *_OPTIONAL))
    missing = [key for key in _NEEDED if key not in arrays]
    if missing:
        raise ValueError(f"{path}: no arrays {', '.join(missing)}; expected an image archive")
    return arrays


def _integers(path: Path, arrays: dict[str, NDArray[Any]], key: str, dimensions: int = 1) -> NDArray[np.int64]:
    array = arrays[key]
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise ValueError(
            f"{path}: {key} is {array.dtype} of shape {array.shape}; expected integers in {dimensions} dimension(s)"
        )
    return array.astype(np.int64)


def _names(path: Path, arrays: dict[str, NDArray[Any]], key: str) -> list[str]:
    array = arrays[key]
    if array.dtype.kind not in "US" or array.ndim != 1:
        raise ValueError(f"{path}: {key} is {array.dtype} of shape {array.shape}; expected strings in one dimension")
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in array.tolist()]


def _items(
    path: Path,
    arrays: dict[str, NDArray[Any]],
    labels: NDArray[np.int64],
    split: NDArray[np.int64],
    class_names: list[str],
) -> list[str]:
    """Return a unique name for each image, the same as in the official layout of the data set if that is known."""
    n = len(labels)
    classes = [class_names[label] if 0 <= label < len(class_names) else "?" for label in labels.tolist()]
    if "filenames" in arrays:
        files = _names(path, arrays, "filenames")
        if len(files) != n:
            raise ValueError(f"{path}: {len(files)} filenames for {n} labels; expected {n}")
        items = [f"{name}/{file}" for name, file in zip(classes, files, strict=True)]
    elif "angle" in arrays and len(arrays["angle"]) == n:
        items = [f"{name}__{angle}.png" for name, angle in zip(classes, arrays["angle"].tolist(), strict=True)]
    else:
        items = [f"{name}/{index}" for index, name in enumerate(classes)]
    if len(set(items)) == n or len(split) != n:
        return items
    return [f"{'test' if part else 'train'}/{item}" for part, item in zip(split.tolist(), items, strict=True)]


def _concatenate_if_all(parts: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None
