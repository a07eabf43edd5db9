"""What the examples of each page of the docs require: files, names, and shorter versions of long runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.docs.workspace import write_labels, write_photos

STARTED = (
    "ssh ",  # another machine
    "torchrun ",  # several processes, which tests/training starts
    "entourage cluster train points",  # on a GPU; tests/cluster trains
    "entourage detect train",  # on a GPU; tests/detect/training trains
)
"""Commands whose options only are checked."""

_TINY = " --backbone efficientnet-lite0 --epochs 1 --config tiny.toml"
_SMALL_PAGES = {"--compose 2 ": "--compose 1 --config small-pages.toml "}

SHORTER: dict[str, dict[str, str]] = {
    "README.md": {
        "embed train birds/ --out run ": f"embed train birds/ --out run{_TINY} ",
        "--config train.toml --minutes 20": "--config train.toml --steps 1",
        "entourage engrave songs/ --out pages ": "entourage engrave songs/ --out pages --config small-pages.toml ",
        "entourage serve photos-labels": "entourage serve photos-labels --source photos/",
    },
    "docs/cluster.md": {
        "--config train.toml --minutes 20": "--config train.toml --steps 1",
        'run_dir="shapes.run", minutes=1': "recipe=RECIPE",
    },
    "docs/detect.md": {
        **_SMALL_PAGES,
        "engrave songs/ --out scanned": "engrave songs/ --out scanned --config small-pages.toml",
        "--compose 20 --seed 7": "--compose 1 --seed 7 --config small-pages.toml",
        "--model detector/detect.safetensors": "--model default",
    },
    "docs/embed.md": {
        "in enumerate(zip(": "in zip(range(80), zip(",
        "--epochs 2": "--epochs 1",
    },
    "docs/engrave.md": {
        "engrave songs/ --out pages": "engrave songs/ --out pages --config small-pages.toml",
        "--compose 40": "--compose 1 --config small-pages.toml",
        "pages/images/NAME.png    #": "pages/images/song-leland-1.png  #",
        "entourage engrave align photo.jpg pages/images/NAME.png": "cp pages/images/song-leland-1.png photo.jpg\n"
        "entourage engrave align photo.jpg pages/images/song-leland-1.png",
    },
    "docs/label.md": {
        "photos/ --labels known.csv": "photos/ --labels photos.csv",
        " --out labelled --train": " --out labelled --train --config few.toml",
        "(160, 160)": "(32, 32)",
        "LabelAugmenter().fit(pixels, y)": "LabelAugmenter(options=FEW).fit(pixels, PHOTO_LABELS)",
        "min_steps=96": "min_steps=2",
        "epochs=1,": "epochs=1, max_steps=2,",
        "pixels[300:]": "pixels[300:340]",
        "y[300:]": "y[300:340]",
    },
    "docs/read.md": _SMALL_PAGES,
    "docs/serve.md": {
        "entourage serve photos-labels": "entourage serve photos-labels --source photos/",
        "entourage serve music": "entourage serve music --source scans/",
        "entourage serve index": "entourage serve index --source photos/",
        "entourage serve groups": "entourage serve groups --source photos/",
    },
    "docs/training.md": {
        "epochs=20": "epochs=2",
        "size = 96": "size = 32",
        "{epochs = 2, learning_rate = 4e-5}": "{epochs = 1}\nmethod_options = {min_steps = 2}",
    },
    "docs/how-to/find-groups.md": {"--minutes 20": "--steps 1 --config train.toml"},
    "docs/how-to/make-annotated-pages.md": _SMALL_PAGES,
    "docs/how-to/train-a-classifier.md": {" --train\n": " --train --config few.toml\n"},
}
"""Text of a page, and what takes its place in the tests."""

FILES = {
    "tiny.toml": "recipe.size = 32\nrecipe.classes_per_batch = 2\nrecipe.samples_per_class = 2\n",
    "train.toml": 'backbone = "efficientnet-lite0"\n',
    "few.toml": "[train]\nsize = 32\nrounds = 1\ntraining = {epochs = 1}\nmethod_options = {min_steps = 2}\n",
    "small-pages.toml": "[page]\nwidth = 1000\nheight = 700\ninterline = 12.0\nmargin = 20\n",
}


def prepare(name: str, folder: Path) -> None:
    """Write the files that a page expects to its folder."""
    for file, text in FILES.items():
        (folder / file).write_text(text)
    paths = write_photos(folder / "photos")
    for file in ("known.csv", "photos.csv"):
        write_labels(folder / file, {f"{p.parent.name}/{p.name}": p.parent.name for p in paths if p.stem < "2"})
    for copy in ("new", "new-photos", "new_photos", "birds"):
        write_photos(folder / copy, "efgh")
    shutil.copy(paths[0], folder / "this-one.jpg")
    for file in (folder / "new-photos").glob("*/*.png"):
        shutil.copy(file, folder / "new-photos" / file.name)
    np.savetxt(
        folder / "points.csv", np.random.default_rng(0).normal(size=(60, 2)), "%.3f", ",", header="x,y", comments=""
    )
    shutil.copy(folder / "points.csv", folder / "table.csv")
    if name in MUSIC:
        prepare_music(folder)


MUSIC = {
    "README.md",
    "docs/detect.md",
    "docs/engrave.md",
    "docs/read.md",
    "docs/serve.md",
    "docs/how-to/read-a-page-of-music.md",
}


def prepare_music(folder: Path) -> None:
    """Write a score, and pages of music as images and as a PDF file."""
    from PIL import Image

    from entourage.engrave.engines.verovio import VerovioEngraver
    from entourage.engrave.options import MusicFont, PageOptions
    from entourage.engrave.scores.composer import compose
    from entourage.engrave.scores.parsing import parse_score

    (folder / "songs").mkdir()
    for path in (folder / "songs" / "song.musicxml", folder / "song.musicxml"):
        path.write_text(compose(2, 1))
    engraver = VerovioEngraver(PageOptions(width=1000, height=600, interline=12), MusicFont("Leipzig"))
    page = next(iter(engraver.engrave(parse_score(compose(2, 1), "song"))))
    picture = Image.fromarray(page.image)
    (folder / "scans").mkdir()
    for path in (
        folder / "page.png",
        folder / "1.png",
        folder / "2.png",
        folder / "scans" / "a.png",
        folder / "song.pdf",
    ):
        picture.save(path)


def digits() -> dict[str, Any]:
    from sklearn.datasets import load_digits

    X, truth = load_digits(return_X_y=True)
    y = np.where(np.arange(len(X)) < 20, truth, -1)
    return {"X": X[:300], "y": y[:300], "X_new": X[300:310]}


def _readme() -> dict[str, Any]:
    return {"embeddings": torch.randn(20, 8), "labels": torch.arange(20) % 4, **digits(), "X": digits()["X"][:, :2]}


def _cluster() -> dict[str, Any]:
    from tests.cluster.small import RECIPE

    return {"RECIPE": RECIPE}


def _embed() -> dict[str, Any]:
    labels = torch.arange(60) % 10
    data = torch.utils.data.TensorDataset(torch.randn(60, 8), labels)
    values: dict[str, Any] = {"d": 512, "m": 100, "labels": labels, "dataset": data, "body": torch.nn.Linear(8, 512)}
    return {**values, "test_embeddings": torch.randn(40, 8), "test_labels": labels[:40]}


def _label() -> dict[str, Any]:
    from entourage.label.semi_supervised import AugmentOptions, MethodOptions
    from entourage.training import TrainingOptions

    few = AugmentOptions(
        size=32, rounds=1, training=TrainingOptions(epochs=1), method_options=MethodOptions(min_steps=2)
    )
    names = np.array([name if number < 2 else "" for name in "abcd" for number in range(4)])
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    return {**digits(), "FEW": few, "PHOTO_LABELS": names, "new_pixels": pixels}


def _serve() -> dict[str, Any]:
    return {"np": np, "texts": ["one", "two"], "embeddings": np.eye(2)}


NAMES: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": _readme,
    "docs/package.md": digits,
    "docs/cluster.md": _cluster,
    "docs/label.md": _label,
    "docs/embed.md": _embed,
    "docs/serve.md": _serve,
}
"""Names that the Python code of a page expects."""
