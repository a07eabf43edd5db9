from types import ModuleType

import numpy as np
import pytest

from entourage.label.semi_supervised.data import SemiSupervisedData


def test_labelled_images_are_known_by_position(toys: ModuleType) -> None:
    examples = SemiSupervisedData(toys.NumberViews(5), np.array([-1, 2, -1, 0, 0]), 3)
    assert len(examples) == 5
    assert examples.labelled.tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("codes", "classes", "message"),
    [
        (np.zeros(4, dtype=np.int64), 2, r"labels of shape \(4,\) for 5 images; expected \(5,\)"),
        (np.zeros((5, 1), dtype=np.int64), 2, r"labels of shape \(5, 1\)"),
        (np.zeros(5, dtype=np.int32), 2, "labels of type int32; expected int64"),
        (np.zeros(5, dtype=np.int64), 1, "1 classes; expected two or more"),
        (np.array([0, 1, 2, -1, -1]), 2, r"labels from -1 to 2; expected -1 \(unlabelled\) to 1"),
        (np.array([0, 1, -2, -1, -1]), 2, "labels from -2 to 1"),
        (np.full(5, -1), 2, "no image is labelled; expected at least one"),
    ],
)
def test_labels_that_do_not_fit_are_refused(toys: ModuleType, codes: np.ndarray, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemiSupervisedData(toys.NumberViews(5), codes, classes)
