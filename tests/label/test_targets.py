"""What users write as labels and priors, and the numbers it becomes."""

import warnings
from typing import Any

import numpy as np
import pytest

from entourage.label import exclusion_prior
from entourage.label.targets import initial_distributions, labelled_mask, read_targets


@pytest.mark.parametrize(
    ("y", "classes", "codes", "unknown"),
    [
        (np.array([3, -1, 7, 3]), [3, 7], [0, -1, 1, 0], -1),
        (np.array([0.0, -1.0, 2.0]), [0, 2], [0, -1, 1], -1),
        (np.array([0, 255, 0], dtype=np.uint8), [0, 255], [0, 1, 0], -1),
        (np.array([True, False]), [False, True], [1, 0], -1),
        (np.array(["b", "", "a", "-1"]), ["a", "b"], [1, -1, 0, -1], ""),
        (np.array(["b", None, "a", "", "-1"], dtype=object), ["a", "b"], [1, -1, 0, -1, -1], ""),
        (np.array([4, None, 2, -1], dtype=object), [2, 4], [1, -1, 0, -1], -1),
        (np.array([-2, -1, 5]), [-2, 5], [0, -1, 1], -1),
    ],
    ids=str,
)
def test_labels_of_every_type_are_read(y: Any, classes: list[Any], codes: list[int], unknown: int | str) -> None:
    targets = read_targets(y)
    assert targets.classes.tolist() == classes
    assert targets.codes.tolist() == codes
    assert targets.missing_label == unknown
    assert targets.labelled.tolist() == [code >= 0 for code in codes]
    assert labelled_mask(y).tolist() == [code >= 0 for code in codes]


@pytest.mark.parametrize("y", [np.array(["b", "", "a"]), np.array(["b", None, "a"], dtype=object)])
def test_given_classes_keep_their_order(y: Any) -> None:
    targets = read_targets(y, ["b", "z", "a"])
    assert targets.classes.tolist() == ["b", "z", "a"]
    assert targets.codes.tolist() == [0, -1, 2]
    assert targets.seen.tolist() == [True, False, True]
    assert targets.one_hot().tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("y", "codes", "names"),
    [
        (np.array([3, 7]), [1, 0], [7, 3]),
        (np.array([3, 7]), [1, -1], [7, -1]),
        (np.array(["abc", "b"]), [-1, 0], ["", "abc"]),
        (np.array(["abc", None, "b"], dtype=object), [-1, 1, 0], ["", "b", "abc"]),
    ],
)
def test_codes_become_names_again(y: Any, codes: list[int], names: list[Any]) -> None:
    assert read_targets(y).decode(np.array(codes)).tolist() == names


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([-1, -1], None, "none of the 2 points is labelled; expected at least one label other than -1"),
        (["", "-1"], None, "none of the 2 points is labelled"),
        ([0, 5], [0, 1, 2], "label 5 is not among the classes 0, 1, 2"),
        (["cat", "cow"], ["cat", "dog"], "label cow is not among the classes cat, dog"),
        ([0, 1], [0, 1, 1], r"classes names one twice: \[0, 1, 1\]"),
        ([0.5, 1.25], None, "Unknown label type"),
    ],
)
def test_bad_labels_are_refused(y: list[Any], classes: list[Any] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_targets(np.array(y), classes)


def test_the_start_is_certain_where_labelled_and_uniform_elsewhere() -> None:
    start = initial_distributions(read_targets(np.array([1, -1, 0])), None)
    assert start.dtype == np.float32
    assert start.tolist() == [[0, 1], [0.5, 0.5], [1, 0]]


def test_the_start_is_the_prior_made_to_sum_to_1_where_unlabelled() -> None:
    prior = [[0.5, 0.5], [3.0, 1.0], [0.1, 0.0]]
    start = initial_distributions(read_targets(np.array([1, -1, 0])), prior)
    assert start.tolist() == [[0, 1], [0.75, 0.25], [1, 0]]


@pytest.mark.parametrize("prior", [None, np.full((3, 3), 1 / 3)])
def test_a_class_without_labels_is_left_out_and_said_once(prior: Any) -> None:
    targets = read_targets(np.array(["a", "", "c"]), ["a", "b", "c"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = initial_distributions(targets, prior)
    assert [str(w.message) for w in caught] == ["no point is labelled b: this is never predicted"]
    assert start.tolist() == [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]]


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (np.ones((2, 2)), r"the prior has shape \(2, 2\); expected \(3, 2\): a row a point and a column a class"),
        (np.ones((3, 3)), r"the prior has shape \(3, 3\); expected \(3, 2\)"),
        (np.ones(3), r"the prior has shape \(3,\)"),
        ([[1, 1], [1, -1], [1, 1]], "row 1 of the prior is no distribution; expected finite numbers of 0 or more"),
        ([[1, 1], [1, 1], [np.nan, 1]], "row 2 of the prior is no distribution"),
        ([[np.inf, 1], [1, 1], [1, 1]], "row 0 of the prior is no distribution"),
        ([[1, 0], [1, 1], [1, 1]], r"point 0 is labelled 1, which is unknown to its prior \(probability 0\)"),
        ([[1, 1], [0, 0], [1, 1]], "the prior leaves point 1 no label that any point has"),
    ],
)
def test_bad_priors_are_refused(prior: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        initial_distributions(read_targets(np.array([1, -1, 0])), prior)


@pytest.mark.filterwarnings("ignore:no point is labelled")
def test_a_prior_on_a_class_without_labels_leaves_no_label() -> None:
    with pytest.raises(ValueError, match="the prior leaves point 1 no label that any point has"):
        initial_distributions(read_targets(np.array([0, -1]), [0, 1]), [[1, 0], [0, 1]])


def test_exclusion_prior_is_uniform_over_what_is_left() -> None:
    prior = exclusion_prior(4, ["a", "b", "c"], {1: ["a"], 3: ["c", "b"]})
    np.testing.assert_allclose(prior, [[1 / 3] * 3, [0, 0.5, 0.5], [1 / 3] * 3, [1, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("excluded", "message"),
    [
        ({4: ["a"]}, "labels are excluded for point 4; expected a position from 0 to 3"),
        ({-1: ["a"]}, "labels are excluded for point -1; expected"),
        ({2: ["d"]}, "label 'd' is excluded for point 2 but is not among the classes"),
        ({0: ["a", "b"]}, "all labels are excluded for point 0; expected one or more to be left"),
    ],
)
def test_bad_exclusions_are_refused(excluded: dict[int, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exclusion_prior(4, ["a", "b"], excluded)
