import os
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from entourage.backbones.features import FeatureStore
from entourage.data.media import list_images
from entourage.embed.index import build
from entourage.embed.index.build import Update, build_index
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.vector_index import Index
from entourage.runs.directory import lock_directory


@pytest.fixture
def embedder(toys: ModuleType) -> Embedder:
    return Embedder.from_backbone(toys.backbone(), "toy")


@pytest.fixture
def data(image_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(image_folder, tmp_path / "data"))


def run(data: Path, embedder: Embedder, out: str = "index") -> Update:
    return build_index(data, data.parent / out, embedder, workers=2, progress=False)


def vectors(folder: Path) -> dict[str, list[float]]:
    index = Index.load(folder)
    return dict(zip(index.items, index.vectors.tolist(), strict=True))


def test_vectors_are_those_of_the_network(data: Path, embedder: Embedder) -> None:
    update = run(data, embedder)
    assert (update.n, update.embedded, update.reused, update.removed) == (64, 64, 0, 0)
    assert update.skipped[0][0] == "class 0/broken.png"
    index = Index.load(data.parent / "index", embedder)
    paths = [path for path in list_images(data) if path.name != "broken.png"]
    assert index.items == [path.relative_to(data).as_posix() for path in paths]
    np.testing.assert_allclose(index.vectors, embedder.embed(paths).vectors, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(index.vectors, axis=1), 1, atol=1e-6)


def test_update_embeds_new_and_changed_images_only(data: Path, embedder: Embedder) -> None:
    run(data, embedder)
    before = vectors(data.parent / "index")
    assert run(data, embedder) == Update(64, 0, 64, 0, [("class 0/broken.png", run(data, embedder).skipped[0][1])])
    (data / "class 1" / "8.png").unlink()  # gone
    Image.new("RGB", (20, 20), "red").save(data / "class 2" / "16.png")  # changed
    Image.new("RGB", (20, 20), "blue").save(data / "class 2" / "new.png")  # new
    (data / "class 3" / "24.png").rename(data / "class 3" / "renamed.png")
    os.utime(data / "class 4" / "32.png", ns=(0, 1))  # touched
    update = run(data, embedder)
    assert (update.n, update.embedded, update.reused, update.removed) == (64, 2, 62, 2)
    after = vectors(data.parent / "index")
    assert list(after) == [one.relative_to(data).as_posix() for one in list_images(data) if one.name != "broken.png"]
    assert after["class 3/renamed.png"] == before["class 3/24.png"]
    assert after["class 2/16.png"] != before["class 2/16.png"]
    assert {name: after[name] for name in before if name in after and name != "class 2/16.png"} == {
        name: before[name] for name in before if name in after and name != "class 2/16.png"
    }
    assert_equal_to_scratch(data, embedder)


def vectors_from_scratch(data: Path, embedder: Embedder) -> dict[str, list[float]]:
    run(data, embedder, "scratch")
    return vectors(data.parent / "scratch")


def assert_equal_to_scratch(data: Path, embedder: Embedder) -> None:
    expected, updated = vectors_from_scratch(data, embedder), vectors(data.parent / "index")
    assert list(updated) == list(expected)
    np.testing.assert_allclose(list(updated.values()), list(expected.values()), atol=1e-6)


def test_unchanged_source_is_not_read_or_written(
    data: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(data, embedder)
    folder = data.parent / "index"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.setattr(embedder, "load_pixels", None)
    with lock_directory(folder):  # needs no lock either
        assert run(data, embedder).embedded == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_equal_images_are_embedded_once(data: Path, embedder: Embedder) -> None:
    shutil.copytree(data / "class 1", data / "copies")
    update = run(data, embedder)
    assert (update.n, update.embedded) == (72, 64)
    both = vectors(data.parent / "index")
    assert both["copies/8.png"] == both["class 1/8.png"]


def test_interrupted_build_resumes(data: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    embed_pixels = embedder.embed_pixels

    def interrupted(pixels: torch.Tensor) -> torch.Tensor:
        calls.append(len(pixels))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return embed_pixels(pixels)

    monkeypatch.setattr(embedder, "embed_pixels", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index(data, data.parent / "index", embedder, batch_size=10, workers=1, progress=False)
    with pytest.raises(ValueError, match=r"contains no current.json; expected an index"):
        Index.load(data.parent / "index")
    update = build_index(data, data.parent / "index", embedder, batch_size=10, workers=1, progress=False)
    assert update.n == 64
    assert 44 <= update.embedded < 64  # what two batches had computed is not computed again
    assert_equal_to_scratch(data, embedder)
    assert not (data.parent / "index" / "pending").exists()


def test_open_index_survives_an_update(data: Path, embedder: Embedder) -> None:
    run(data, embedder)
    index = Index.load(data.parent / "index", embedder)
    before = index.vectors.copy()
    shutil.rmtree(data / "class 1")
    run(data, embedder)
    np.testing.assert_array_equal(index.vectors, before)
    assert len(Index.load(data.parent / "index")) == 56


@pytest.mark.parametrize("damage", ["states", "current"])
def test_damaged_files(data: Path, embedder: Embedder, damage: str) -> None:
    run(data, embedder)
    folder = data.parent / "index"
    (path,) = folder.glob(f"{damage}*")
    path.write_text("{")
    if damage == "current":
        with pytest.raises(ValueError, match=r"current.json: damaged .*; expected an index"):
            run(data, embedder)
    else:  # all images are read again
        assert run(data, embedder).embedded == 64


def test_other_network_or_source_raises(data: Path, embedder: Embedder, toys: ModuleType) -> None:
    run(data, embedder)
    other = Embedder.load(toys.ToyBody(), size=20, device="cpu")
    with pytest.raises(
        ValueError, match="index holds a run with the embeddings of another network, or of other weights"
    ):
        run(data, other)
    with pytest.raises(ValueError, match=r"index holds a run with source .*class 1"):
        build_index(data / "class 1", data.parent / "index", embedder, progress=False)
    shutil.rmtree(data / "class 2")
    with lock_directory(data.parent / "index"), pytest.raises(ValueError, match=r"index: .*; wait for it"):
        run(data, embedder)


def test_no_readable_image_raises(tmp_path: Path, embedder: Embedder) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"data: .* 1 images .*; expected at least one"):
        run(tmp_path / "data", embedder)


def test_vectors_that_cannot_be_stored_raise(data: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeatureStore, "lookup", lambda self, keys: iter(()))
    with pytest.raises(ValueError, match=r"index: .* 64 images .*; expected a writable folder with free space"):
        run(data, embedder)


def test_file_of_vectors_is_scaled_and_replaced(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * 9
    values[3] = 0
    np.save(tmp_path / "v.npy", values)
    update = build_index(tmp_path / "v.npy", tmp_path / "index", progress=False)
    assert (update.n, update.embedded, update.removed) == (40, 40, 0)
    index = Index.load(tmp_path / "index")
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(index.vectors, values / np.maximum(lengths, 1), rtol=1e-5)
    np.save(tmp_path / "v.npy", values[:30])
    assert build_index(tmp_path / "v.npy", tmp_path / "index", progress=False).removed == 10
    assert len(Index.load(tmp_path / "index")) == 30
    assert len(list((tmp_path / "index").glob("vectors-*"))) == 1
    values[5, 2] = np.nan
    np.save(tmp_path / "v.npy", values)
    with pytest.raises(ValueError, match=r"row 6 .*; expected finite numbers"):
        build_index(tmp_path / "v.npy", tmp_path / "index", progress=False)
    assert len(Index.load(tmp_path / "index")) == 30  # the former version is unchanged


def test_blocks_do_not_change_the_result(data: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    run(data, embedder)
    expected = vectors_from_scratch(data, embedder)
    monkeypatch.setattr(build, "BLOCK_ROWS", 5)
    shutil.rmtree(data / "class 6")
    run(data, embedder)
    left = {name: vector for name, vector in expected.items() if not name.startswith("class 6")}
    assert vectors(data.parent / "index") == left
