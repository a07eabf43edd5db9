"""Priors of all labellers."""

import warnings

import numpy as np
import pytest
from tests.label.conftest import Data, Method, assert_sound

from entourage.label import GraphTransduction, exclusion_prior


def test_a_uniform_prior_changes_nothing(method: Method, three: Data) -> None:
    plain = method(n_neighbors=30).fit(three.X, three.y)
    prior = method(n_neighbors=30).fit(three.X, three.y, prior=np.full((60, 3), 0.7))
    np.testing.assert_allclose(prior.label_distributions_, plain.label_distributions_, atol=1e-6)
    np.testing.assert_array_equal(prior.transduction_, plain.transduction_)


@pytest.mark.filterwarnings("ignore:no label reaches")
def test_a_uniform_prior_reaches_no_point(graph_method: Method, lost: Data) -> None:
    assert len(graph_method().fit(lost.X, lost.y, prior=np.full((80, 3), 1 / 3)).unreached_) == 20


def test_the_game_spreads_a_prior_where_no_label_reaches(lost: Data) -> None:
    prior = np.ones((80, 3))
    prior[70] = 0.2, 0.2, 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = GraphTransduction().fit(lost.X, lost.y, prior=prior)
    assert_sound(found, 80)
    assert found.unreached_.tolist() == []
    np.testing.assert_array_equal(found.transduction_, np.where(lost.truth == 3, 2, lost.truth))
    assert found.predict([[60.0, 60.1]]).tolist() == [2]


def test_excluded_labels_have_probability_0(method: Method, three: Data) -> None:
    excluded = {1: [0], 25: [1], 26: [1, 0], 45: [2]}
    prior = exclusion_prior(60, [0, 1, 2], excluded)
    y = np.where(np.arange(60) % 4 == 0, three.truth, -1)
    found = method(n_neighbors=30).fit(three.X, y, prior=prior)
    assert_sound(found, 60)
    for point, labels in excluded.items():
        assert (found.label_distributions_[point, labels] == 0).all()
        assert found.transduction_[point] not in labels
    others = np.setdiff1d(np.arange(60), list(excluded))
    np.testing.assert_array_equal(found.transduction_[others], three.truth[others])
