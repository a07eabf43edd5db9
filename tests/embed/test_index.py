import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.embed.ensemble import EmbeddedImages, embed_images
from entourage.embed.index import INDEX, Index, find_index
from entourage.embed.read import read_images
from entourage.embed.run_folder import load_members, read_config
from entourage.game import directions


def test_nearest_are_the_largest_cosines_without_oneself() -> None:
    torch.manual_seed(0)
    embeddings = directions(torch.randn(30, 5))
    index = Index(embeddings, [str(i) for i in range(30)], ["a"] * 30, [])
    queries = torch.stack([embeddings[4], directions(torch.randn(1, 5))[0]])
    places, cosines = index.nearest(queries, 3, [4, None])
    for row, own in ((0, 4), (1, None)):
        ranking = sorted((i for i in range(30) if i != own), key=lambda i: -float(queries[row] @ embeddings[i]))
        assert places[row].tolist() == ranking[:3]
        torch.testing.assert_close(cosines[row], queries[row] @ embeddings[ranking[:3]].T)


def test_no_more_are_found_than_there_are() -> None:
    index = Index(torch.eye(3), ["a", "b", "c"], ["x"] * 3, [])
    assert index.nearest(torch.eye(3)[:1], 8, [0])[0].tolist() == [[1, 2]]
    assert index.nearest(torch.eye(3)[:1], 8, [None])[0].shape == (1, 3)


def test_an_index_is_made_once_and_again_when_images_or_networks_change(
    trained: Path, image_folder: Path, tmp_path: Path
) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    shutil.copytree(image_folder, data)
    calls: list[int] = []

    def find() -> Index:
        config, images = read_config(run), read_images(data)

        def embed() -> EmbeddedImages:
            calls.append(len(images))
            return embed_images(load_members(run, config, "cpu"), images, config.recipe.decoded_side, progress=False)

        return find_index(run, config, images, embed)

    first, second = find(), find()
    assert calls == [65]
    assert torch.equal(first.embeddings, second.embeddings)
    assert (first.items, first.classes, first.skipped) == (second.items, second.classes, second.skipped)
    assert len(first.items) == 64
    assert first.classes[0] == "class 0"
    assert first.skipped[0][0] == "class 0/broken.png"
    image = data / "class 3" / "24.png"
    os.utime(image, ns=(0, image.stat().st_mtime_ns + 10**9))
    find()
    assert len(calls) == 2
    (run / INDEX).write_bytes(b"damaged")
    find()
    text = (run / "config.json").read_text()
    weights = read_config(run).weights
    (run / "config.json").write_text(text.replace(weights, "other weights"))
    find()
    assert len(calls) == 4


def test_training_leaves_an_index_of_all_images(
    trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed() -> EmbeddedImages:
        raise AssertionError("the index of the training should do")

    config, images = read_config(trained), read_images(image_folder)
    index = find_index(trained, config, images, embed)
    made = embed_images(load_members(trained, config, "cpu"), images, config.recipe.decoded_side, progress=False)
    torch.testing.assert_close(index.embeddings, made.embeddings)
    assert index.items == [images.items[place] for place in made.kept]
    np.testing.assert_allclose(index.embeddings.norm(dim=1), 1, rtol=1e-5)
