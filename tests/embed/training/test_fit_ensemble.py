"""Training of ensembles, and their concatenated embeddings."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.data.pixels import decode_pixels
from entourage.embed.data import read_images
from entourage.embed.models import concatenate_embeddings, embed_rows
from entourage.embed.training import fit as ensemble
from entourage.embed.training.fit import embed_ensemble, embed_images, train_embedding, train_ensemble
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.run_folder import load_members, read_run_config
from entourage.embed.training.task import EmbeddingData
from entourage.training.images import ImageBank

RECIPE = Recipe(size=20, classes_per_batch=4, samples_per_class=4, stages=(Stage(1, 1e-2),), seed=5)


def test_members_equal_separate_trainings(toys: ModuleType, tmp_path: Path) -> None:
    pixels, labels = toys.images()
    data = EmbeddingData(ImageBank(pixels), labels, np.arange(96))
    members = train_ensemble(toys.backbone, data, RECIPE, 2, run_dir=tmp_path, device="cpu", progress=False)
    assert {path.name for path in tmp_path.iterdir()} == {"member-1", "member-2"}
    single = train_embedding(toys.backbone(), data, RECIPE, device="cpu", progress=False)
    rows = np.arange(0, 96, 5)
    embeddings = [embed_rows(one.network, data.bank, rows, one.preprocessing) for one in (single, *members)]
    assert torch.equal(embeddings[0], embeddings[1])
    assert not torch.allclose(embeddings[1], embeddings[2], atol=1e-3)
    together = embed_ensemble(members, data.bank, rows)
    torch.testing.assert_close(together, concatenate_embeddings(embeddings[1:]))


def test_empty_ensemble_raises(toys: ModuleType) -> None:
    pixels, labels = toys.images()
    with pytest.raises(ValueError, match="n_members is 0; expected 1 or more"):
        train_ensemble(toys.backbone, EmbeddingData(ImageBank(pixels), labels, np.arange(96)), RECIPE, 0)


def test_images_are_embedded_in_chunks_without_unreadable_ones(
    trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ensemble, "CHUNK_SIZE", 7)
    members = load_members(trained, read_run_config(trained), "cpu")
    images = read_images(image_folder)
    embedded = embed_images(members, images, 20, progress=False)
    pixels = decode_pixels(images, (20, 20), progress=False)
    assert embedded.indices.tolist() == pixels.indices.tolist()
    assert embedded.skipped == pixels.failures
    torch.testing.assert_close(embedded.embeddings, embed_ensemble(members, ImageBank(pixels.values), np.arange(64)))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"of 1 images .*not an image.*; expected at least one"):
        embed_images(members, read_images(tmp_path), 20, progress=False)
