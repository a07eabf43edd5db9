"""Cars-196 as published: images in folders, labels in MATLAB files, in either of the two forms they were given out."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.datasets.folders import files_below
from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.io.files import reason_of


def read_cars196(folder: str | Path) -> ImageSet:
    """Read the one-file form: cars_annos.mat names every image in car_ims/, its class and its part.

    Args:
        folder: where they are.

    Returns:
        All images, with the official split. No image is opened.

    Raises:
        ValueError: a file is missing or not of that form.
    """
    root = Path(folder)
    path = root / "cars_annos.mat"
    table = _read_mat(path)
    files, classes = _column(path, table, "relative_im_path"), _column(path, table, "class")
    is_test = _column(path, table, "test").astype(np.int64)
    items = files.tolist()
    return _image_set(root, items, classes, is_test, _class_names(path, table))


def read_cars196_devkit(folder: str | Path) -> ImageSet:
    """Read the form with a devkit: devkit/cars_meta.mat, cars_train_annos.mat, cars_train/ and the same for the test.

    The labels of the test images came later, as cars_test_annos_withlabels.mat, beside the devkit or in it.

    Args:
        folder: the one that holds devkit/, cars_train/ and cars_test/.

    Returns:
        All images, those for training first. No image is opened.

    Raises:
        ValueError: a file is missing or not of that form.
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
        labels=classes.astype(np.int64) - 1,  # MATLAB counts from 1
        class_names=names,
        split=(is_test != 0).astype(np.uint8),
        items=items,
    )


def _read_mat(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected the annotations of Cars-196")
    from scipy.io import loadmat  # nobody else waits for it

    try:
        return dict(loadmat(path, squeeze_me=True))
    # SciPy's reader raises almost anything on a damaged file, and NotImplementedError on one that is really HDF5.
    except Exception as error:
        raise ValueError(f"{path}: cannot be read as a MATLAB file: {reason_of(error)}") from error


def _column(path: Path, table: dict[str, Any], name: str) -> NDArray[Any]:
    annotations = np.atleast_1d(table.get("annotations", np.empty(0)))
    if annotations.dtype.names is None or name not in annotations.dtype.names:
        raise ValueError(f"{path}: no field {name!r} in 'annotations'; found: {annotations.dtype.names or 'nothing'}")
    cells = annotations[name].tolist()
    kind: type = str if name in ("fname", "relative_im_path") else int
    if not cells or not all(isinstance(cell, kind) for cell in cells):
        raise ValueError(f"{path}: field {name!r} of 'annotations' is not {kind.__name__} throughout")
    return np.array(cells)


def _class_names(path: Path, table: dict[str, Any]) -> list[str]:
    names = np.atleast_1d(table.get("class_names", np.empty(0))).tolist()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: no texts 'class_names'; found: {', '.join(key for key in table if key[0] != '_')}")
    return [str(name) for name in names]
