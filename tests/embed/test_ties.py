"""Expectations of tied rankings, compared with the mean over all orders."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from entourage.embed import retrieval_metrics


def mean_over_orders(distances: list[float], hits: list[bool], k: tuple[int, ...]) -> dict[str, float]:
    """Compute the metrics of one query as the mean over all orders that agree with the distances."""
    r, sums, count = sum(hits), dict.fromkeys((*(f"recall@{at}" for at in k), "r_precision", "map@r"), 0.0), 0
    for order in permutations(range(len(hits))):
        if any(distances[a] > distances[b] for a, b in pairwise(order)):
            continue
        ranked = [hits[item] for item in order]
        count += 1
        for at in k:
            sums[f"recall@{at}"] += any(ranked[:at])
        sums["r_precision"] += sum(ranked[:r]) / r
        sums["map@r"] += sum(sum(ranked[: p + 1]) / (p + 1) for p in range(r) if ranked[p]) / r
    return {name: value / count for name, value in sums.items()}


@pytest.mark.parametrize("seed", range(6))
def test_metrics_are_the_mean_over_all_orders(seed: int) -> None:
    generator = np.random.default_rng(seed)
    points = np.array([[0.0], [1.0], [3.5]])[generator.integers(0, 3, size=7)]  # equal points have equal distances
    labels = generator.permutation([0, 0, 0, 1, 1, 1, 2])
    k = (1, 2, 3)
    expected = []
    for query in range(7):
        others = [item for item in range(7) if item != query]
        hits = [bool(labels[item] == labels[query]) for item in others]
        if any(hits):
            distances = [abs(float(points[item, 0] - points[query, 0])) for item in others]
            expected.append(mean_over_orders(distances, hits, k))
    actual = retrieval_metrics(points, labels, k, normalize=False, nmi=False)
    assert actual == pytest.approx({name: np.mean([one[name] for one in expected]) for name in expected[0]}, abs=1e-9)


@pytest.mark.parametrize("block", [3, 2**24])
def test_collapsed_embeddings_score_as_random_ones(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entourage.embed.metrics.BLOCK_SIZE", block)
    labels = np.repeat(np.arange(5), 4)  # an order in which the first neighbours would be hits
    collapsed = retrieval_metrics(torch.full((20, 3), 0.7), labels, (1, 16), nmi=False)
    assert collapsed["recall@1"] == pytest.approx(3 / 19)
    assert collapsed["r_precision"] == pytest.approx(3 / 19)
    assert collapsed["recall@16"] == pytest.approx(1 - 1 / 969)  # all three hits are among the last three of 19

    shuffled = np.random.default_rng(0).permutation(labels)
    assert retrieval_metrics(torch.full((20, 3), 0.7), shuffled, (1, 16), nmi=False) == pytest.approx(collapsed)


def test_small_sets_need_no_argument() -> None:
    points, labels = torch.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1]
    metrics = retrieval_metrics(points, labels, nmi=False)
    assert list(metrics) == ["recall@1", "recall@2", "r_precision", "map@r"]
    assert metrics["recall@1"] == 1
    names = list(retrieval_metrics(torch.eye(9), np.repeat([0, 1, 2], 3), nmi=False))
    assert names[:4] == ["recall@1", "recall@2", "recall@4", "recall@8"]
    assert list(retrieval_metrics(torch.eye(3), [0, 0, 1], nmi=False))[:2] == ["recall@1", "recall@2"]
