"""Embeddings of decoded images and of ensembles."""

from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.embed import models as represent
from entourage.embed.models import build_network, center_crop, concatenate_embeddings, embed_rows
from entourage.training.images import ImageBank


@pytest.mark.parametrize("batch", [4, 1000])
def test_rows_are_embedded_in_order(toys: ModuleType, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(represent.BATCH_SIZES, "cpu", batch)
    backbone = toys.backbone()
    network = build_network(backbone, 3).eval()
    pixels, _ = toys.images()
    rows = np.array([7, 3, 50, 3, 0, 95])
    inputs = backbone.preprocessing.normalize(torch.from_numpy(pixels[rows]).permute(0, 3, 1, 2))
    embeddings = embed_rows(network, ImageBank(pixels), rows, backbone.preprocessing)
    torch.testing.assert_close(embeddings, network.embed(inputs).detach())
    both = embed_rows(network, ImageBank(pixels), rows, backbone.preprocessing, flip=True)
    torch.testing.assert_close(both, (network.embed(inputs) + network.embed(inputs.flip(3))).detach())
    assert embed_rows(network, ImageBank(pixels), rows[:0], backbone.preprocessing).shape == (0, 8)


def test_larger_images_are_centre_cropped() -> None:
    pixels = torch.arange(2 * 3 * 6 * 8).view(2, 3, 6, 8)
    torch.testing.assert_close(center_crop(pixels, (4, 4)), pixels[:, :, 1:5, 2:6])
    assert torch.equal(center_crop(pixels, (6, 8)), pixels)
    with pytest.raises(ValueError, match="pixels: images of 6 x 8; expected 7 x 7 or more"):
        center_crop(pixels, (7, 7))


def test_ensemble_cosines_are_the_means_of_its_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(6, d, generator=generator) * 10.0**d for d in (3, 5, 4)]
    joined = concatenate_embeddings(parts)
    assert joined.shape == (6, 12)
    units = [torch.nn.functional.normalize(part) for part in parts]
    torch.testing.assert_close(joined @ joined.T, torch.stack([unit @ unit.T for unit in units]).mean(dim=0))


@pytest.mark.parametrize("counts", [(), (3, 4)])
def test_different_numbers_of_items_raise(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"parts: embeddings of (none|3, 4) items; expected one or more networks"):
        concatenate_embeddings([torch.zeros(count, 2) for count in counts])
