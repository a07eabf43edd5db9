import csv
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from entourage.data.features import read_features
from entourage.embed import Embedder, Index, export
from entourage.embed.index import export as export_module
from entourage.embed.index.search import open_run_index, source_name


@pytest.fixture
def index(trained: Path, image_folder: Path) -> Index:
    from entourage.embed.data import read_images

    return open_run_index(trained, read_images(image_folder), source_name(str(image_folder)))


def test_parquet_is_read_by_the_other_commands(index: Index, tmp_path: Path) -> None:
    assert export(index, tmp_path / "v.parquet").n == 64
    frame = pd.read_parquet(tmp_path / "v.parquet")
    assert list(frame.columns[:3]) == ["item", "label", "x0"]
    assert frame["label"].tolist() == index.labels
    frame.drop(columns="label").to_parquet(tmp_path / "v.parquet")
    table = read_features(tmp_path / "v.parquet")
    assert table.items == index.items
    np.testing.assert_array_equal(table.values, index.vectors)


def test_npy_has_its_names_next_to_it(index: Index, tmp_path: Path) -> None:
    result = export(index.folder, tmp_path / "v.npy")
    assert result.files == [tmp_path / "v.npy", tmp_path / "v.csv"]
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), index.vectors)
    with (tmp_path / "v.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["item", "label"]
    assert [row[0] for row in rows] == index.items


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path, index: Index) -> None:
    index.items[0] = os.fsdecode(b"caf\xe9.png")
    export(index, tmp_path / "v.parquet")
    assert pd.read_parquet(tmp_path / "v.parquet")["item"][0] == r"caf\udce9.png"


def test_program_computes_the_embeddings_of_any_number_of_images(
    trained: Path, image_folder: Path, tmp_path: Path
) -> None:
    embedder = Embedder.load(trained, device="cpu")  # an ensemble of two
    result = export(trained, tmp_path / "network.pt2")
    assert result.difference is not None
    assert result.difference < 1e-5
    program = torch.export.load(tmp_path / "network.pt2").module()
    images = [embedder.preprocess(image) for image in _images(image_folder, 3)]
    pixels = torch.stack(images)
    torch.testing.assert_close(program(pixels.float()), embedder.embed_pixels(pixels).clone(), atol=1e-6, rtol=0)


def test_onnx_computes_the_embeddings(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    embedder = Embedder.load(trained, device="cpu")
    result = export(trained, tmp_path / "network.onnx")
    assert result.difference is not None
    assert result.difference < 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["network.onnx"]
    session = runtime.InferenceSession(str(tmp_path / "network.onnx"), providers=["CPUExecutionProvider"])
    pixels = torch.stack([embedder.preprocess(image) for image in _images(image_folder, 5)])
    (embeddings,) = session.run(["embeddings"], {"pixels": pixels.float().numpy()})
    np.testing.assert_allclose(embeddings, embedder.embed_pixels(pixels), atol=1e-5)


def _images(folder: Path, count: int) -> list[object]:
    from entourage.data.media import read_image

    return [read_image(path) for path in sorted(folder.glob("class 2/*.png"))[:count]]


def test_network_of_an_index(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "export_program", lambda embedder, path: float(embedder.dim))
    for source in (index, index.folder, index.embedder):
        assert export(source, tmp_path / "network.pt2").difference == index.version.dim


def test_network_that_differs_or_cannot_be_exported_raises(tmp_path: Path, toys: ModuleType) -> None:
    class Random(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.mean((2, 3)) + torch.rand(3, device=images.device)

    class Branch(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.mean((2, 3)) if images.sum() > 0 else images.amax((2, 3))

    with pytest.raises(ValueError, match=r"network.pt2: the exported network differs from torch by .*; expected 1e-05"):
        export(Embedder.load(Random(), size=8, device="cpu"), tmp_path / "network.pt2")
    with pytest.raises(ValueError, match="network of a module: cannot be exported: "):
        export(Embedder.load(Branch(), size=8, device="cpu"), tmp_path / "network.pt2")
    assert not list(tmp_path.iterdir())


def test_invalid_files_raise(tmp_path: Path, toys: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"v.txt: unknown suffix '.txt'; expected a name that ends in .parquet"):
        export(tmp_path, tmp_path / "v.txt")
    with pytest.raises(ValueError, match=r"v.npy: vectors of a network; expected an index"):
        export(Embedder.from_backbone(toys.backbone()), tmp_path / "v.npy")
