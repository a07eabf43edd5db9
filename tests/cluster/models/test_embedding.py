from __future__ import annotations

import pytest
import torch

from entourage.cluster.models.embedding import ConvolutionalEmbedding, PointEmbedding, make_embedding, standardize
from entourage.cluster.models.options import ModelOptions


def test_points_are_unchanged_or_standardised() -> None:
    x = torch.randn(3, 10, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(PointEmbedding(2, standardise=False)(x), x)
    standardised = PointEmbedding(2, standardise=True)
    torch.testing.assert_close(standardised(x).mean(1), torch.zeros(3, 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(standardised(x).square().mean((1, 2)), torch.ones(3))
    torch.testing.assert_close(standardised(1000 * x - 7), standardised(x), atol=1e-4, rtol=1e-4)
    assert (standardised(torch.ones(1, 4, 2)) == 0).all()  # duplicates of one point: 0, not NaN


@pytest.mark.parametrize("pooled", [True, False])
def test_images_are_embedded_independently(pooled: bool) -> None:
    torch.manual_seed(0)
    network = ConvolutionalEmbedding((3, 32, 16), 0.3, pooled=pooled).eval()
    x = torch.randn(2, 4, 3, 32, 16)
    embedded = network(x)
    assert embedded.shape == (2, 4, 256)
    torch.testing.assert_close(embedded[1, 2], network(x[1:, 2:3])[0, 0], atol=1e-5, rtol=1e-4)


def test_the_layers_are_those_of_the_appendix() -> None:
    network = ConvolutionalEmbedding((1, 128, 128), 0.3, pooled=False)
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(1, 32), (32, 64), (64, 128)]
    assert [m.out_features for m in network.modules() if isinstance(m, torch.nn.Linear)] == [256, 256]


def test_make_embedding_depends_on_the_shape_of_items() -> None:
    options = ModelOptions()
    assert isinstance(make_embedding((5,), options), PointEmbedding)
    assert isinstance(make_embedding((1, 16, 16), options), ConvolutionalEmbedding)
    with pytest.raises(ValueError, match=r"expected \(columns,\)"):
        make_embedding((4, 4), options)
    with pytest.raises(ValueError, match="expected a height and width of 8 or more"):
        make_embedding((1, 4, 16), options)


def test_pooling_preserves_a_grid_of_images_and_frequencies_of_sounds() -> None:
    image, sound = (ConvolutionalEmbedding(shape, 0.3, pooled=True) for shape in ((3, 128, 128), (1, 128, 128)))
    assert image.head[0].in_features == 128 * 4 * 4
    assert sound.head[0].in_features == 128 * 16


def test_standardisation_is_invariant_to_scale_and_origin() -> None:
    x = torch.randn(2, 12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = standardize(x)
    for scale in (1e-30, 1e30, 1e-200, 1e200):
        torch.testing.assert_close(standardize(scale * x), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(standardize(x + 5e6), expected, rtol=0, atol=1e-8)  # 5e6 takes seven of sixteen digits
    single = PointEmbedding(2, standardise=True)
    for scale in (1e-30, 1e30):  # whose squares exceed single precision
        torch.testing.assert_close(single((scale * x).float()), expected.float(), rtol=1e-5, atol=1e-6)
    assert single(x).dtype == PointEmbedding(2, standardise=False)(x).dtype == torch.float32
    torch.testing.assert_close(single(x + 5e6), expected.float(), rtol=0, atol=1e-6)
