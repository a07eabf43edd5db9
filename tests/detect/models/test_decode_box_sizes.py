from __future__ import annotations

import pytest
import torch

from entourage.detect.models.decode import set_box_sizes, typical_box_sizes

BOXES = torch.tensor([[0.0, 0, 2, 4], [1, 1, 4, 6], [0, 0, 40, 60], [5, 5, 6, 7]])
LABELS = torch.tensor([1, 1, 1, 3])


def test_typical_sizes_are_medians_of_classes() -> None:
    sizes = typical_box_sizes(BOXES, LABELS, 3)
    assert sizes[0].tolist() == [3, 5]
    assert sizes[1].isnan().all()
    assert sizes[2].tolist() == [1, 2]


def test_boxes_get_the_typical_size_around_their_centre_unless_it_is_nan() -> None:
    sizes = torch.tensor([[4.0, 2.0], [torch.nan, torch.nan]])
    changed = set_box_sizes(BOXES[:2], torch.tensor([1, 2]), sizes)
    assert changed.tolist() == [[-1, 1, 3, 3], [1, 1, 4, 6]]
    with pytest.raises(ValueError, match="expected a call of `set_typical_sizes`"):
        set_box_sizes(BOXES, LABELS, None)
