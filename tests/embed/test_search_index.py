import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.data.image_set import ImageSet
from entourage.embed import search as module
from entourage.embed.data import read_images
from entourage.embed.search import EmbeddingIndex, load_or_build_index
from entourage.embed.training.fit import EmbeddedImages, embed_images
from entourage.embed.training.run_folder import load_members, read_run_config
from entourage.game.similarity import normalize_rows


def test_nearest_has_the_largest_cosines_without_the_query() -> None:
    torch.manual_seed(0)
    embeddings = normalize_rows(torch.randn(30, 5))
    index = EmbeddingIndex(embeddings, [str(i) for i in range(30)], ["a"] * 30, [])
    queries = torch.stack([embeddings[4], normalize_rows(torch.randn(1, 5))[0]])
    neighbors, cosines = index.nearest(queries, 3, [4, None])
    for row, position in ((0, 4), (1, None)):
        ranking = sorted((i for i in range(30) if i != position), key=lambda i: -float(queries[row] @ embeddings[i]))
        assert neighbors[row].tolist() == ranking[:3]
        torch.testing.assert_close(cosines[row], queries[row] @ embeddings[ranking[:3]].T)


def test_top_k_is_limited_to_the_index() -> None:
    index = EmbeddingIndex(torch.eye(3), ["a", "b", "c"], ["x"] * 3, [])
    neighbors, cosines = index.nearest(torch.eye(3)[:1], 8, [0])
    assert neighbors.tolist() == [[1, 2, 0]]
    assert cosines.tolist() == [[0, 0, -torch.inf]]  # the query itself comes last
    assert index.nearest(torch.eye(3)[:1], 8, [None])[0].shape == (1, 3)


def test_index_is_rebuilt_if_images_or_networks_change(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    shutil.copytree(image_folder, data)
    trained_indices = list(run.glob("index-*.safetensors"))
    calls: list[int] = []

    def load_or_build() -> EmbeddingIndex:
        config, images = read_run_config(run), read_images(data)

        def embed() -> EmbeddedImages:
            calls.append(len(images))
            return embed_images(load_members(run, config, "cpu"), images, config.recipe.decoded_side, progress=False)

        return load_or_build_index(run, config, images, embed)

    first, second = load_or_build(), load_or_build()
    assert calls == [65]
    assert torch.equal(first.embeddings, second.embeddings)
    assert (first.items, first.classes, first.skipped) == (second.items, second.classes, second.skipped)
    assert len(first.items) == 64
    assert first.classes[0] == "class 0"
    assert first.skipped[0][0] == "class 0/broken.png"
    (new_index,) = set(run.glob("index-*.safetensors")) - set(trained_indices)
    image = data / "class 3" / "24.png"
    os.utime(image, ns=(0, image.stat().st_mtime_ns + 10**9))
    load_or_build()
    assert len(calls) == 2
    os.utime(image, ns=(0, image.stat().st_mtime_ns - 10**9))
    load_or_build()
    assert len(calls) == 2  # the index of the unchanged images still exists
    new_index.write_bytes(b"damaged")
    load_or_build()
    text = (run / "config.json").read_text()
    weights = read_run_config(run).weights
    (run / "config.json").write_text(text.replace(weights, "other weights"))
    load_or_build()
    assert len(calls) == 4


def embedded(images: ImageSet) -> EmbeddedImages:
    return EmbeddedImages(torch.ones(len(images), 2), np.arange(len(images)), [])


def test_each_set_has_an_index_and_the_least_recently_used_are_removed(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INDEXES", 3)
    config, images = read_run_config(trained), read_images(image_folder)
    sets = [images.subset(np.arange(5 + n)) for n in range(5)]
    built: list[int] = []

    def load_or_build(number: int) -> None:
        def embed() -> EmbeddedImages:
            built.append(number)
            return embedded(sets[number])

        assert len(load_or_build_index(tmp_path, config, sets[number], embed).items) == 5 + number
        for path in tmp_path.iterdir():  # file systems may store coarse times
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**10))

    for number in (0, 1, 2, 0, 3, 0, 2, 3, 1):
        load_or_build(number)
    assert built == [0, 1, 2, 3, 1]  # index 3 replaced the least recently used one, index 1
    assert len(list(tmp_path.iterdir())) == 3


def test_index_that_cannot_be_written_warns(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(module, "write_weights", read_only)
    images = read_images(image_folder)
    with pytest.warns(UserWarning, match=r"^the index is not stored: cannot write to .*: Read-only file system$"):
        index = load_or_build_index(tmp_path, read_run_config(trained), images, lambda: embedded(images))
    assert len(index.items) == len(images)


def test_training_stores_an_index_of_all_images(
    trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed() -> EmbeddedImages:
        raise AssertionError("the stored index was not used")

    config, images = read_run_config(trained), read_images(image_folder)
    index = load_or_build_index(trained, config, images, embed)
    made = embed_images(load_members(trained, config, "cpu"), images, config.recipe.decoded_side, progress=False)
    torch.testing.assert_close(index.embeddings, made.embeddings)
    assert index.items == [images.items[k] for k in made.indices]
    np.testing.assert_allclose(index.embeddings.norm(dim=1), 1, rtol=1e-5)
