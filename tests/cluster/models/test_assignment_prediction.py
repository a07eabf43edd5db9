from __future__ import annotations

import torch

from entourage.cluster.models.assignment import SetPrediction


def random_prediction(b: int = 2, n: int = 5, k_max: int = 3) -> SetPrediction:
    torch.manual_seed(0)
    scores = torch.randn(b, n, k_max, k_max, dtype=torch.float64)
    valid = torch.ones(k_max, k_max, dtype=torch.bool).tril()  # k clusters for every k
    count = torch.randn(b, k_max, dtype=torch.float64).log_softmax(-1)
    assignment = scores.masked_fill(~valid, -torch.inf).softmax(-1)
    return SetPrediction(count, assignment, torch.randn(b, n, 4, dtype=torch.float64))


def test_same_is_the_sum_of_the_appendix() -> None:
    p = random_prediction()
    for s in range(2):
        for i in range(5):
            for j in range(5):
                expected = 0.0
                for k in range(1, 4):
                    inner = sum(p.assignment[s, i, k - 1, c] * p.assignment[s, j, k - 1, c] for c in range(k))
                    expected += float(p.count[s, k - 1].exp() * inner)
                torch.testing.assert_close(float(p.same()[s, i, j]), expected)


def test_clusters_are_those_of_the_most_probable_k() -> None:
    p = random_prediction()
    for s in range(2):
        k = int(p.count[s].argmax())
        assert torch.equal(p.clusters()[s], p.assignment[s, :, k].argmax(-1))
    assert torch.equal(p.clusters(torch.tensor([3, 1]))[0], p.assignment[0, :, 2].argmax(-1))
    assert (p.clusters(torch.tensor([3, 1]))[1] == 0).all()
    assert p.k_max == 3
