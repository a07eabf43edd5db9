"""Ensembles: members differ by their seed alone, and their embeddings stand side by side."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.embed.ensemble import embed_ensemble, train_ensemble
from entourage.embed.fit import train_embedding
from entourage.embed.recipe import Recipe, Stage
from entourage.embed.represent import embed_rows, join_embeddings
from entourage.embed.training import EmbeddingData
from entourage.training.bank import PixelBank

RECIPE = Recipe(size=20, classes_per_batch=4, samples_per_class=4, stages=(Stage(1, 1e-2),), seed=5)


def test_members_are_what_their_seeds_would_train_alone(toys: ModuleType, tmp_path: Path) -> None:
    pixels, labels = toys.images()
    data = EmbeddingData(PixelBank(pixels), labels, np.arange(96))
    members = train_ensemble(toys.backbone, data, RECIPE, 2, run=tmp_path, device="cpu", progress=False)
    assert {path.name for path in tmp_path.iterdir()} == {"member-1", "member-2"}
    alone = train_embedding(toys.backbone(), data, RECIPE, device="cpu", progress=False)
    rows = np.arange(0, 96, 5)
    embeddings = [embed_rows(one.network, data.bank, rows, one.preprocessing) for one in (alone, *members)]
    assert torch.equal(embeddings[0], embeddings[1])
    assert not torch.allclose(embeddings[1], embeddings[2], atol=1e-3)
    together = embed_ensemble(members, data.bank, rows)
    torch.testing.assert_close(together, join_embeddings(embeddings[1:]))


def test_an_ensemble_of_nobody_is_refused(toys: ModuleType) -> None:
    pixels, labels = toys.images()
    with pytest.raises(ValueError, match="members is 0; expected 1 or more"):
        train_ensemble(toys.backbone, EmbeddingData(PixelBank(pixels), labels, np.arange(96)), RECIPE, 0)
