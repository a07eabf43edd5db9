from pathlib import Path

import numpy as np
from benchmarks.embed_duplicates import KINDS, changed, plant
from PIL import Image


def test_copies_are_changed_as_stated() -> None:
    image = Image.fromarray(np.arange(100 * 80 * 3, dtype=np.uint8).reshape(80, 100, 3))
    copies = {kind: changed(image, kind, np.random.default_rng(0)) for kind in KINDS}
    sizes = {"resized": (60, 48), "recompressed": (100, 80), "cropped": (95, 76), "mirrored": (100, 80)}
    assert {kind: copy.size for kind, copy in copies.items()} == sizes
    np.testing.assert_array_equal(np.asarray(copies["mirrored"]), np.asarray(image)[:, ::-1])


def test_planted_pairs_are_named_as_the_index_names_them(tmp_path: Path) -> None:
    paths = [tmp_path / "cub200" / f"{number}.webp" for number in range(4)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 20)).save(path)
    planted = plant(tmp_path, paths, 4)
    assert sorted(planted.values()) == sorted(KINDS)
    assert all((tmp_path / name).is_file() for pair in planted for name in pair)
    assert all(list(pair) == sorted(pair) for pair in planted)
