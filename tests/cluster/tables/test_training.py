from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from entourage.cluster.sampling.tables import TableOptions
from entourage.cluster.tables.scorer import PartitionScorer, ScorerOptions, Scores
from entourage.cluster.tables.training import (
    Batch,
    ExampleStream,
    adjusted_rand,
    drop_candidates,
    evaluate_scorer,
    fit_scaling,
    make_example,
    recalibrate,
    scorer_loss,
    train_scorer,
)

TINY = TableOptions(n_min=24, n_max=40, k_max=3)
CPU = torch.device("cpu")


def examples(count: int = 6) -> list:
    made = [make_example([0, i], TINY) for i in range(count)]
    return [example for example in made if example is not None]


def test_the_fast_adjusted_rand_index_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for k in (1, 2, 6):
        first, second = rng.integers(0, k, 50), rng.integers(0, 3, 50)
        assert adjusted_rand(first, second) == pytest.approx(adjusted_rand_score(first, second))
    assert adjusted_rand(np.zeros(5, dtype=int), np.zeros(5, dtype=int)) == 1


def test_an_example_is_reproducible_and_scores_its_candidates() -> None:
    first, second = (make_example([3, 4], TINY) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.values, second.values)
    assert first.ari.shape == first.k.shape == (len(first.values),)
    assert first.agreement.shape == (len(first.k), len(first.k))
    assert first.ari.max() <= 1
    assert 1 <= first.true_k <= 3


def test_the_loss_prefers_scores_that_are_the_truth() -> None:
    batch = Batch.of(examples(), CPU)
    right = torch.where(batch.mask, 20 * batch.ari, -1e4)
    count = torch.where(batch.mask & (batch.k == batch.true_k[:, None]), 5.0, -5.0).masked_fill(~batch.mask, -1e4)
    good = scorer_loss(Scores(count, 4 * batch.ari - 2, right), batch)
    assert good < scorer_loss(Scores(-count.clamp(-5, 5), 2 - 4 * batch.ari, -right.clamp(-20, 20)), batch)


def test_dropping_candidates_keeps_one_cluster_and_half_of_the_others() -> None:
    example = examples(1)[0]
    fewer = drop_candidates(example, np.random.default_rng(0))
    assert 0.25 * len(example.k) < len(fewer.k) < len(example.k)
    assert (fewer.k == 1).any()
    assert fewer.agreement.shape == (len(fewer.k), len(fewer.k))


def test_scores_of_a_validation_are_means_over_the_examples() -> None:
    made = examples()
    scorer = PartitionScorer(ScorerOptions(made[0].values.shape[1], width=16, depth=1, heads=2))
    fit_scaling(scorer, made)
    scores = evaluate_scorer(scorer, made, CPU)
    assert scores["best_ari"] == pytest.approx(np.mean([e.ari.max() for e in made]), abs=1e-5)
    assert scores["choice_ari"] <= scores["best_ari"]
    assert 0 <= scores["count_k"] <= 1


def test_recalibration_lowers_the_loss_and_changes_the_output_layer_only() -> None:
    made = examples(10)
    torch.manual_seed(0)
    scorer = PartitionScorer(ScorerOptions(made[0].values.shape[1], width=16, depth=1, heads=2))
    fit_scaling(scorer, made)
    before = {name: value.clone() for name, value in scorer.state_dict().items()}
    loss = evaluate_scorer(scorer, made, CPU)["loss"]
    recalibrate(scorer, made)
    assert evaluate_scorer(scorer, made, CPU)["loss"] < loss
    changed = {name for name, value in scorer.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"out.weight", "out.bias"}


class _Stream(ExampleStream):
    """Examples without processes."""

    def __post_init__(self) -> None:
        self.examples = examples(16)

    def collect(self) -> None:
        pass


def test_training_decreases_the_loss_of_its_examples() -> None:
    stream = _Stream(0, 1)
    options = ScorerOptions(stream.examples[0].values.shape[1], width=16, depth=1, heads=2, dropout=0.0)
    torch.manual_seed(0)
    untrained = PartitionScorer(options)
    fit_scaling(untrained, stream.examples)
    before = evaluate_scorer(untrained, stream.examples, CPU)["loss"]
    reports: list[float] = []
    trained = train_scorer(
        stream, 5.0, first=8, validation=4, batch_size=4, options=options, report=lambda _, s: reports.append(s["step"])
    )
    assert evaluate_scorer(trained, stream.examples, CPU)["loss"] < before
    assert reports
