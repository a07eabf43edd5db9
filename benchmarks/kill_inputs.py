"""The commands that `benchmarks.kill_commands` disturbs, and their small inputs."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes:
        name: its words.
        arguments: its arguments and options.
        inputs: names of the files and folders that it reads, of `INPUTS`.
    """

    name: str
    arguments: str
    inputs: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The command line after `entourage`."""
        return [*self.name.split(), *self.arguments.split()]


PAGE = "pages/images/composed-00000-leland-1.png"

CASES = (
    Case("label", "points.npy --labels points.csv --out out", ("points.npy", "points.csv")),
    Case(
        "label --train",
        "photos --labels photos.csv --out out --config few.toml",
        ("photos", "photos.csv", "few.toml"),
    ),
    Case("label predict", "trained/classifier.safetensors photos --out out.csv", ("trained", "photos")),
    Case("embed index", "photos --out out --model efficientnet-lite0", ("photos",)),
    Case("embed search", "index photo.png --out out.html", ("index", "photos", "photo.png")),
    Case("embed duplicates", "index --out out.html", ("index", "photos")),
    Case("embed export", "index --out out.npy", ("index", "photos")),
    Case(
        "embed train",
        "photos --out out --backbone efficientnet-lite0 --epochs 1 --config tiny.toml",
        ("photos", "tiny.toml"),
    ),
    Case("embed eval", "run photos", ("run", "photos")),
    Case("cluster run", "plane.csv --out out --model points", ("plane.csv",)),
    Case("cluster train", "photos --out out.safetensors --steps 4 --config train.toml", ("photos", "train.toml")),
    Case("engrave run", "--compose 2 --out out --config page.toml --workers 1", ("page.toml",)),
    Case("engrave stats", "pages", ("pages",)),
    Case("engrave show", PAGE, ("pages",)),
    Case("engrave align", f"photo.jpg {PAGE}", ("pages", "photo.jpg")),
    Case("engrave crops", "pages --out out.parquet", ("pages",)),
    Case("detect run", "pages/images --out out", ("pages",)),
    Case("detect eval", "pages --split all --out out", ("pages",)),
    Case("detect train", "pages --out out --steps 4 --config network.toml", ("pages", "network.toml")),
    Case("read", "pages/images --out out --workers 1", ("pages",)),
)
"""A case for each command that writes files; `serve` and `demo` are missing, see `tests/serve` and `tests/demo`."""

_TEXTS = {
    "few.toml": "[train]\nsize = 32\nrounds = 2\ntraining = {epochs = 1}\nmethod_options = {min_steps = 2}\n",
    "tiny.toml": "recipe.size = 32\nrecipe.classes_per_batch = 2\nrecipe.samples_per_class = 2\n",
    "train.toml": 'backbone = "efficientnet-lite0"\n',
    "page.toml": "[page]\nwidth = 800\nheight = 500\ninterline = 8.0\nmargin = 10\n",
    "network.toml": '[recipe]\nbatch = 1\ndegradation = "none"\nvalidation = 1\nepoch = 2\n'
    "window = {height = 64, width = 128}\n"
    "[options.network]\nwidths = [8, 8, 12]\nblocks = [1, 1, 1]\nupwards = [8, 8, 8]\nhidden = 16\n",
}


def write_photos(folder: Path) -> None:
    """Write noise in a colour for each of four classes, as CLASS/NUMBER.png."""
    from PIL import Image

    for code, name in enumerate("abcd"):
        for number in range(4):
            rng = np.random.default_rng([code, number])
            pixels = rng.integers(0, 100, (40, 40, 3)) + np.array([code % 2, code // 2, 0]) * 150
            path = folder / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)


def _write_labels(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("item", "label"), *rows])


def _write_simple(folder: Path) -> None:
    """Write the inputs that no command makes."""
    for name, text in _TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_photos(folder / "photos")
    shutil.copy(folder / "photos" / "a" / "0.png", folder / "photo.png")
    _write_labels(folder / "photos.csv", [(f"{name}/{n}.png", name) for name in "abcd" for n in (0, 1)])
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 8)) + 5 * (np.arange(200) % 2)[:, None]
    np.save(folder / "points.npy", points)
    _write_labels(folder / "points.csv", [("0", "even"), ("1", "odd")])
    np.savetxt(folder / "plane.csv", points[:, :2], "%.3f", ",", header="x,y", comments="")


MADE = {"trained": "label --train", "index": "embed index", "run": "embed train", "pages": "engrave run"}
"""Inputs that are the folder `out` of a command."""


def prepare(folder: Path, cases: Sequence[Case], run: Callable[[list[str], Path], object]) -> None:
    """Write the inputs of commands.

    Args:
        folder: the folder to write them to; it is made.
        cases: the commands.
        run: runs a command line in a folder.
    """
    folder.mkdir()
    _write_simple(folder)
    words = {case.name: case.words for case in CASES}
    needed = {name for case in cases for name in case.inputs}
    for made in MADE.keys() & needed:
        run(words[MADE[made]], folder)
        (folder / "out").rename(folder / made)
    if "photo.jpg" in needed:
        from PIL import Image

        with Image.open(folder / PAGE) as page:
            page.convert("RGB").save(folder / "photo.jpg")
