"""Near-duplicates: precision and recall on planted copies of pictures.

    python -m benchmarks.embed_duplicates                      # 2,000 pictures, 200 copies; needs ENTOURAGE_DATA
    python -m benchmarks.embed_duplicates --pictures 10000

The pictures are files of CUB-200-2011 and Cars-196. Each copy is of another picture: resized to 60 %, recompressed as
JPEG of quality 40, cropped by 5 % at a random position, or mirrored, a quarter of the copies each. Two pictures of the
data sets that are copies of each other count as errors, as no list of these exists.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.embed_index import write_pictures
from benchmarks.machine import machine
from entourage.data.media import read_image
from entourage.embed.index.build import build_index
from entourage.embed.index.duplicates import find_duplicates

KINDS = ("resized", "recompressed", "cropped", "mirrored")


def main() -> None:
    """Print precision and recall of pairs, and recall by kind of copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--copies", type=int, default=200)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_pictures(folder / "data", arguments.pictures)
        planted = plant(folder / "data", paths, arguments.copies)
        start = time.perf_counter()
        build_index(folder / "data", folder / "index", progress=False)
        built = time.perf_counter()
        result = find_duplicates(folder / "index", progress=False)
        seconds = time.perf_counter() - built
        found = {pair for group in result.groups for pair in combinations(sorted(group), 2)}
        correct = found & planted.keys()
        precision, recall = len(correct) / max(1, len(found)), len(correct) / len(planted)
        print(f"{arguments.pictures:,} pictures, {arguments.copies} copies: index {built - start:.0f} s")
        print(f"duplicates: {seconds:.1f} s, precision {precision:.3f}, recall {recall:.3f}")
        for kind in KINDS:
            pairs = {pair for pair, its_kind in planted.items() if its_kind == kind}
            print(f"  {kind}: {len(pairs & correct)} of {len(pairs)}")
        for pair in sorted(found - planted.keys()):
            print(f"  not planted: {', '.join(pair)}")


def plant(folder: Path, paths: list[Path], count: int) -> dict[tuple[str, str], str]:
    """Write copies of random pictures; return the kind of each pair of original and copy."""
    generator = np.random.default_rng(0)
    planted: dict[tuple[str, str], str] = {}
    for number, row in enumerate(generator.permutation(len(paths))[:count].tolist()):
        kind = KINDS[number % len(KINDS)]
        suffix = ".jpg" if kind == "recompressed" else ".png"
        copy = folder / "copies" / f"{number}{suffix}"
        copy.parent.mkdir(exist_ok=True)
        options = {"quality": 40} if kind == "recompressed" else {}
        changed(read_image(paths[row]), kind, generator).save(copy, **options)
        pair = sorted(path.relative_to(folder).as_posix() for path in (copy, paths[row]))
        planted[pair[0], pair[1]] = kind
    return planted


def changed(image: Image.Image, kind: str, generator: np.random.Generator) -> Image.Image:
    """Return a copy of an image, changed in one of the ways of `KINDS`."""
    width, height = image.size
    if kind == "resized":
        return image.resize((round(0.6 * width), round(0.6 * height)), Image.Resampling.LANCZOS)
    if kind == "cropped":
        cropped_width, cropped_height = round(0.95 * width), round(0.95 * height)
        left = int(generator.integers(width - cropped_width + 1))
        top = int(generator.integers(height - cropped_height + 1))
        return image.crop((left, top, left + cropped_width, top + cropped_height))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if kind == "mirrored" else image


if __name__ == "__main__":
    main()
