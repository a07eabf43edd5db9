"""Conversion of labels and priors to class codes and initial distributions."""

import warnings
from typing import Any

import numpy as np
import pytest

from entourage.label import exclusion_prior
from entourage.label.targets import initial_distributions, labelled_mask, read_targets


@pytest.mark.parametrize(
    ("y", "classes", "codes", "missing_label"),
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
def test_labels_of_every_type_are_read(y: Any, classes: list[Any], codes: list[int], missing_label: int | str) -> None:
    targets = read_targets(y)
    assert targets.classes.tolist() == classes
    assert targets.codes.tolist() == codes
    assert targets.missing_label == missing_label
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
def test_decode_returns_the_classes(y: Any, codes: list[int], names: list[Any]) -> None:
    assert read_targets(y).decode(np.array(codes)).tolist() == names


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([-1, -1], None, "none of the 2 points is labelled; expected at least one label other than -1"),
        (["", "-1"], None, "none of the 2 points is labelled; expected at least one label other than -1"),
        ([0, 5], [0, 1, 2], "label 5 is not among the classes 0, 1, 2"),
        (["cat", "cow"], ["cat", "dog"], "label cow is not among the classes cat, dog"),
        ([0, 1], [0, 1, 1], r"classes has duplicates: \[0, 1, 1\]; expected unique values"),
        ([0.5, 1.25], None, "Unknown label type"),
    ],
)
def test_invalid_labels_raise(y: list[Any], classes: list[Any] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_targets(np.array(y), classes)


def test_initial_distributions_are_one_hot_or_uniform() -> None:
    x = initial_distributions(read_targets(np.array([1, -1, 0])), None)
    assert x.dtype == np.float32
    assert x.tolist() == [[0, 1], [0.5, 0.5], [1, 0]]


def test_initial_distributions_of_unlabelled_points_are_the_normalised_prior() -> None:
    prior = [[0.5, 0.5], [3.0, 1.0], [0.1, 0.0]]
    x = initial_distributions(read_targets(np.array([1, -1, 0])), prior)
    assert x.tolist() == [[0, 1], [0.75, 0.25], [1, 0]]


@pytest.mark.parametrize("prior", [None, np.full((3, 3), 1 / 3)])
def test_a_class_without_labels_has_probability_0_and_warns_once(prior: Any) -> None:
    targets = read_targets(np.array(["a", "", "c"]), ["a", "b", "c"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = initial_distributions(targets, prior)
    assert [str(w.message) for w in caught] == ["no point is labelled b: this is never predicted"]
    assert x.tolist() == [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]]


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (np.ones((2, 2)), r"prior has shape \(2, 2\); expected \(3, 2\)"),
        (np.ones((3, 3)), r"prior has shape \(3, 3\); expected \(3, 2\)"),
        (np.ones(3), r"prior has shape \(3,\); expected \(3, 2\): one row per point"),
        ([[1, 1], [1, -1], [1, 1]], "prior: row 1 is not a distribution; expected finite numbers of 0 or more"),
        ([[1, 1], [1, 1], [np.nan, 1]], "prior: row 2 is not a distribution; expected finite numbers of 0 or more"),
        ([[np.inf, 1], [1, 1], [1, 1]], "prior: row 0 is not a distribution; expected finite numbers of 0 or more"),
        ([[1, 0], [1, 1], [1, 1]], "prior: the label 1 of point 0 has probability 0; expected a positive number"),
        ([[1, 1], [0, 0], [1, 1]], "prior: excludes all labels of point 1; expected"),
    ],
)
def test_invalid_priors_raise(prior: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        initial_distributions(read_targets(np.array([1, -1, 0])), prior)


@pytest.mark.filterwarnings("ignore:no point is labelled")
def test_a_prior_on_a_class_without_labels_raises() -> None:
    with pytest.raises(ValueError, match="prior: excludes all labels of point 1; expected"):
        initial_distributions(read_targets(np.array([0, -1]), [0, 1]), [[1, 0], [0, 1]])


def test_exclusion_prior_is_uniform_over_the_remaining_classes() -> None:
    prior = exclusion_prior(4, ["a", "b", "c"], {1: ["a"], 3: ["c", "b"]})
    np.testing.assert_allclose(prior, [[1 / 3] * 3, [0, 0.5, 0.5], [1 / 3] * 3, [1, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("excluded", "message"),
    [
        ({4: ["a"]}, "excluded: has point 4; expected an index from 0 to 3"),
        ({-1: ["a"]}, "excluded: has point -1; expected an index"),
        ({2: ["d"]}, "excluded: has label 'd' for point 2; expected one of the classes"),
        ({0: ["a", "b"]}, "excluded: has all labels for point 0; expected at least one to remain"),
    ],
)
def test_invalid_exclusions_raise(excluded: dict[int, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exclusion_prior(4, ["a", "b"], excluded)
