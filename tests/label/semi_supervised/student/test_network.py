"""The network of the student."""

from __future__ import annotations

import pytest
import torch

from entourage.label.semi_supervised.student import StudentBody, student_backbone
from entourage.label.semi_supervised.student.network import FEATURE_SCALE, STUDENT


@pytest.mark.parametrize(("side", "last_map"), [(16, 2), (32, 4), (48, 6), (64, 4), (96, 4)])
def test_larger_images_have_a_coarser_first_layer(side: int, last_map: int) -> None:
    body = StudentBody(side).eval()
    images = torch.zeros(2, 3, side, side)
    assert body.stages(body.stem(images)).shape == (2, body.dim, last_map, last_map)
    assert body(images).shape == (2, body.dim)


def test_features_are_mean_plus_maximum_over_the_map() -> None:
    body = StudentBody().eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    cells = body.stages(body.stem(images)).flatten(2)
    torch.testing.assert_close(body(images), FEATURE_SCALE * (cells.mean(2) + cells.amax(2)))


def test_backbones_of_a_seed_have_equal_weights_and_leave_the_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second, other = student_backbone(32, 1), student_backbone(32, 1), student_backbone(32, 2)
    assert torch.equal(torch.get_rng_state(), before)
    pairs = [first.module.state_dict(), second.module.state_dict(), other.module.state_dict()]
    name = "stem.0.weight"
    assert torch.equal(pairs[0][name], pairs[1][name])
    assert not torch.equal(pairs[0][name], pairs[2][name])
    assert (first.name, first.dim, first.size) == (STUDENT, 256, (32, 32))
    assert 3.0e6 < sum(parameter.numel() for parameter in first.module.parameters()) < 3.4e6
