from types import ModuleType

import numpy as np
import pytest

from entourage.label.semi_supervised.data import SemiSupervisedData


def test_labelled_returns_indices(toys: ModuleType) -> None:
    examples = SemiSupervisedData(toys.NumberViews(5), np.array([-1, 2, -1, 0, 0]), 3)
    assert len(examples) == 5
    assert examples.labelled.tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("codes", "classes", "message"),
    [
        (np.zeros(4, dtype=np.int64), 2, r"codes has shape \(4,\) for 5 images; expected \(5,\)"),
        (np.zeros((5, 1), dtype=np.int64), 2, r"codes has shape \(5, 1\).*; expected \(5,\)"),
        (np.zeros(5, dtype=np.int32), 2, "codes has type int32; expected int64"),
        (np.zeros(5, dtype=np.int64), 1, "n_classes is 1; expected two or more"),
        (np.array([0, 1, 2, -1, -1]), 2, r"codes has values from -1 to 2; expected -1 \(unlabelled\) to 1"),
        (np.array([0, 1, -2, -1, -1]), 2, r"codes has values from -2 to 1; expected -1 \(unlabelled\) to 1"),
        (np.full(5, -1), 2, "codes: no image is labelled; expected at least one"),
    ],
)
def test_invalid_codes_raise(toys: ModuleType, codes: np.ndarray, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemiSupervisedData(toys.NumberViews(5), codes, classes)
