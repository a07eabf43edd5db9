from __future__ import annotations

import torch

from entourage.cluster.sampling.augmentation import ImageClassAugmentation, SoundClassAugmentation

LABELS = torch.tensor([[0, 0, 1, 1, 2], [1, 0, 2, 0, 2]])


def test_probability_zero_changes_nothing(generator: torch.Generator) -> None:
    images, sounds = torch.rand(2, 5, 3, 8, 8), torch.rand(2, 5, 1, 16, 12)
    torch.testing.assert_close(ImageClassAugmentation(probability=0.0)(images, LABELS, generator), images)
    torch.testing.assert_close(
        SoundClassAugmentation(probability=0.0)(sounds, LABELS, generator), sounds, atol=1e-5, rtol=1e-4
    )


def test_items_of_a_cluster_share_the_augmentation(generator: torch.Generator) -> None:
    for augmentation, item in (
        (ImageClassAugmentation(probability=1.0), torch.rand(3, 8, 8)),
        (SoundClassAugmentation(probability=1.0), torch.rand(1, 16, 12)),
    ):
        changed = augmentation(item.expand(2, 5, *item.shape), LABELS, generator)
        assert changed.shape == (2, 5, *item.shape)
        for s in range(2):
            for i in range(5):
                for j in range(i):
                    equal = torch.allclose(changed[s, i], changed[s, j], atol=1e-5)
                    assert equal == bool(LABELS[s, i] == LABELS[s, j])


def test_channels_are_permuted_and_images_rotated_by_90_degrees(generator: torch.Generator) -> None:
    image = torch.rand(3, 6, 6)
    changed = ImageClassAugmentation(probability=1.0, mix=0.0)(
        image.expand(40, 1, 3, 6, 6), torch.zeros(40, 1).long(), generator
    )
    orders = set()
    for one in changed[:, 0]:
        variants = [
            (tuple(order), q)
            for order in torch.cartesian_prod(*[torch.arange(3)] * 3).tolist()
            for q in range(4)
            if torch.allclose(image[order].rot90(q, (-2, -1)), one)
        ]
        assert len(variants) == 1
        orders.add(variants[0])
    assert len({order for order, _ in orders}) == 6
    assert len({q for _, q in orders}) == 4


def test_frequencies_are_stretched_from_the_lowest_band(generator: torch.Generator) -> None:
    bands = torch.linspace(0, 1, 33)[:, None].expand(33, 10)  # the value identifies the source band
    items = bands.expand(60, 1, 1, 33, 10)
    changed = SoundClassAugmentation(probability=1.0, warp=0.15, tilt=0.0)(items, torch.zeros(60, 1).long(), generator)[
        :, 0, 0
    ]
    assert changed[:, 0].abs().max() < 1e-5
    stretch = changed[:, 16, 5] / bands[16, 5]
    assert 0.85 <= stretch.min() < 0.9
    assert 1.1 < stretch.max() <= 1.15
