"""A saved classifier and some images in, a table of labels out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from entourage.data.images import list_images
from entourage.io.writing import atomic_path, check_output_file
from entourage.label.semi_supervised.classifier import ImageClassifier, Predictions


def predict_images(
    classifier: str | Path,
    images: Sequence[Path],
    *,
    out: Path | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[list[Path], Predictions]:
    """Classify image files and all images below folders.

    Args:
        classifier: a file that `ImageClassifier.save` wrote.
        images: files and folders.
        out: where the answers will be written; that there is room for them is checked before any image is looked at.
        device: where the network runs.
        progress: show a bar; None: only on a terminal.

    Returns:
        The paths that were found, and what the classifier says of them.

    Raises:
        ValueError: none of the images is there or can be read, the classifier cannot be read, a folder holds no image,
            or `out` cannot be written or would replace the classifier or an image. (A file that is missing beside
            others is set aside, as broken ones are.)
    """
    if images and not any(place.exists() for place in images):  # a slip of the hand, not a broken file
        raise ValueError(f"{images[0]}: no such file or folder; expected image files, or folders of them")
    paths = [path for place in images for path in (list_images(place) if place.is_dir() else [place])]
    if out is not None:
        check_output_file(out, ".csv", [Path(classifier), *paths])
    model = ImageClassifier.load(classifier)
    predictions = model.predict(paths, device=device, progress=progress)
    if paths and not predictions.kept:
        path, reason = predictions.failures[0]
        raise ValueError(f"none of the {len(paths)} images can be read; the first is {path}: {reason}")
    return paths, predictions


def write_predictions(target: Path | TextIO, paths: Sequence[Path], predictions: Predictions) -> None:
    """Write item, label and confidence of every image that could be read, as CSV; a file is written whole or not.

    Names of files need not be UTF-8: a byte that is not is written as its number, such as \\udce9, and so is whatever
    else a stream cannot write in its encoding.
    """
    if isinstance(target, Path):
        with atomic_path(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            write_predictions(stream, paths, predictions)
        return
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["item", "label", "confidence"])
    rows = zip(predictions.kept, predictions.labels, predictions.probabilities.max(axis=1, initial=0), strict=True)
    encoding = target.encoding or "utf-8"  # a text in memory has none

    def writable(text: str) -> str:
        return text.encode(encoding, "backslashreplace").decode(encoding)

    writer.writerows([writable(str(paths[place])), writable(label), f"{sure:.4f}"] for place, label, sure in rows)
