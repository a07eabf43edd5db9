import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from entourage.embed.index import source as module
from entourage.embed.index.source import ImageCollection, VectorTable, read_collection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/two.png", "a/one.png", "three.png", os.fsdecode(b"caf\xe9.png")):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(path)
    return tmp_path / "data"


def images(source: Path) -> ImageCollection:
    collection = read_collection(source)
    assert isinstance(collection, ImageCollection)
    return collection


def vectors(source: Path) -> VectorTable:
    table = read_collection(source)
    assert isinstance(table, VectorTable)
    return table


def test_folder_of_any_depth_needs_no_classes(folder: Path) -> None:
    collection = images(folder)
    assert collection.items == ["a/one.png", "b/two.png", os.fsdecode(b"caf\xe9.png"), "three.png"]
    assert collection.labels is None
    assert collection.path(1) == folder / "b" / "two.png"


def test_csv_of_paths(folder: Path) -> None:
    (folder / "list.csv").write_text("Label, Path \nx,a/one.png\ny,../data/three.png\n")
    collection = images(folder / "list.csv")
    assert collection.items == ["a/one.png", "../data/three.png"]
    assert collection.labels == ["x", "y"]
    assert collection.source.read(1).size == (4, 4)
    (folder / "list.csv").write_text("file\na/one.png\n")
    assert images(folder / "list.csv").labels is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n", "list.csv: has the columns x, y; expected a column path, file, .* with paths of images"),
        ("path\n", "list.csv: has no rows; expected a row per image"),
        ("path,x\na,1\na,2\n", "list.csv: line 3 repeats 'a'; expected another path"),
        ("path,x\n,1\n", "list.csv: line 2 has no path; expected another path"),
    ],
)
def test_invalid_csv_raises(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_collection(tmp_path / "list.csv")


def test_vectors_of_npy_are_mapped_and_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(12, dtype=np.float64).reshape(6, 2)
    np.save(tmp_path / "v.npy", values)
    monkeypatch.setattr(module, "BLOCK_ROWS", 4)
    table = vectors(tmp_path / "v.npy")
    assert isinstance(table.values, np.memmap)
    assert table.items == ["0", "1", "2", "3", "4", "5"]
    blocks = list(table.blocks())
    assert [len(block) for block in blocks] == [4, 2]
    np.testing.assert_array_equal(np.concatenate(blocks), values)


def test_vectors_of_parquet_have_names(tmp_path: Path) -> None:
    pd.DataFrame({"item": ["p", "q"], "x": [1.0, 2.0]}).to_parquet(tmp_path / "v.parquet")
    table = vectors(tmp_path / "v.parquet")
    assert (table.items, table.values.tolist()) == (["p", "q"], [[1.0], [2.0]])


def test_invalid_vectors_raise(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"v.npy: an array of shape \(3,\) .*; expected numbers, shape \(n, d\)"):
        read_collection(tmp_path / "v.npy")
    (tmp_path / "v.npy").write_text("text")
    with pytest.raises(ValueError, match=r"v\.npy: .*pickled"):
        read_collection(tmp_path / "v.npy")
    with pytest.raises(ValueError, match=r"nothing .*; expected a folder of images, an image archive"):
        read_collection(tmp_path / "nothing")
