"""Number and random choice of anchors."""

import pytest
import torch

from entourage.embed.losses.group_loss import sample_anchors

LABELS = torch.tensor([3, 1, 3, 1, 3, 7, 1, 3])


@pytest.mark.parametrize("per_class", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("random", [False, True])
def test_each_class_has_the_requested_number_of_anchors_or_all_samples(per_class: int, random: bool) -> None:
    torch.manual_seed(0)
    anchors, sizes = sample_anchors(LABELS, per_class, random=random)
    for label, size in ((1, 3), (3, 4), (7, 1)):
        assert int(anchors[label == LABELS].sum()) == min(per_class, size)
        assert (sizes[label == LABELS] == size).all()


def test_first_samples_of_each_class_are_anchors() -> None:
    anchors, _ = sample_anchors(LABELS, 2, random=False)
    assert anchors.tolist() == [True, True, True, True, False, True, False, False]


def test_samples_of_a_class_are_equally_likely() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 1, 0, 1, 0])
    often = torch.stack([sample_anchors(labels, 1)[0] for _ in range(2000)]).double().mean(dim=0)
    # 1/4 and 1/2; six standard deviations of a frequency in 2,000 draws are below 0.07.
    torch.testing.assert_close(often, torch.tensor([0.25, 0.25, 0.5, 0.25, 0.5, 0.25]).double(), rtol=0, atol=0.07)


def test_equal_seeds_give_equal_anchors() -> None:
    labels = torch.zeros(50, dtype=torch.long)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(sample_anchors(labels, 10)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
