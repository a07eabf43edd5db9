from __future__ import annotations

import json
from dataclasses import dataclass

import torch

from entourage.cluster.sampling.augmentation import ImageAugmentation, unaugmented_image
from entourage.io.fingerprint import RaggedRows, digest, transform_config


def test_a_digest_knows_numbers_types_shapes_and_order() -> None:
    one = torch.arange(6, dtype=torch.float32)
    others = [one + 1, one.double(), one.reshape(2, 3), one.flip(0), one[:0], one.bfloat16()]
    found = [digest(one), *(digest(other) for other in others), digest(one, one)]
    assert len(set(found)) == len(found)
    assert digest(one.clone()) == digest(one)
    assert digest(torch.arange(12, dtype=torch.float32)[::2] / 2) == digest(one)  # wherever the numbers lie


def test_rows_of_unequal_length_are_known_as_one_tensor_filled_up_with_zeros() -> None:
    rows = RaggedRows(torch.arange(1, 7), torch.tensor([2, 3, 1]))
    filled = torch.tensor([[1, 2, 0], [3, 4, 5], [6, 0, 0]])
    assert digest(rows, rows.sizes) == digest(filled, rows.sizes)
    assert digest(RaggedRows(torch.arange(1, 7), torch.tensor([2, 1, 3]))) != digest(filled)


@dataclass(frozen=True)
class _Around:
    inner: object


def test_names_hold_settings_and_no_addresses() -> None:
    assert transform_config(ImageAugmentation(flip=0.2)) != transform_config(ImageAugmentation(flip=0.3))
    assert transform_config(_Around(unaugmented_image)) == {"name": "_Around", "inner": "unaugmented_image"}
    assert transform_config(None) is None
    assert transform_config(_Around((1, object()))) == {"name": "_Around", "inner": [1, "object"]}
    json.dumps(transform_config(ImageAugmentation()))
