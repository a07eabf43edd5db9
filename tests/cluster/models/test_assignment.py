from __future__ import annotations

import torch
from torch import Tensor

from entourage.cluster.models.assignment import (
    SEED_FEATURES,
    choose_seeds,
    count_log_probabilities,
    is_distinct,
    seed_features,
    soft_k_means,
)
from entourage.cluster.models.embedding import squared_distances

SIZES = (9, 6, 4)


def codes(gap: float = 6.0) -> tuple[Tensor, Tensor]:
    """Return codes, shape (1, 19, 2), and labels of three compact clusters of different size."""
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
    centers = gap * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    noise = 0.05 * torch.randn(19, 2, generator=torch.Generator().manual_seed(0))
    return (centers[labels] + noise).unsqueeze(0), labels


def test_seeds_are_in_different_clusters_largest_first() -> None:
    code, labels = codes()
    chosen = choose_seeds(squared_distances(code), 3)
    assert labels[chosen[0]].tolist() == [0, 1, 2]


def test_seeds_maximise_the_documented_score() -> None:
    code = torch.randn(2, 11, 3, generator=torch.Generator().manual_seed(3))
    distance = squared_distances(code)
    chosen = choose_seeds(distance, 4)
    for s in range(2):
        p, unexplained = torch.exp(-distance[s]), torch.ones(11)
        for seed in chosen[s].tolist():
            score = [float(unexplained[i] * sum(unexplained[j] * p[i, j] for j in range(11))) for i in range(11)]
            assert seed == max(range(11), key=score.__getitem__)
            unexplained = unexplained * (1 - p[seed])


def test_seed_features_separate_new_clusters_from_explained_items() -> None:
    code, _ = codes()
    distance = squared_distances(code)
    chosen = choose_seeds(distance, 5)
    features = seed_features(distance, chosen)[0]
    assert features.shape == (5, SEED_FEATURES)
    odds, nearest, mass, fraction, ratio, unexplained, beyond, size = features.T
    assert (odds[:3] > 5).all()
    assert (odds[3:] < 0).all()
    assert (nearest[1:3] > 3).all()
    torch.testing.assert_close(mass[:3], torch.tensor(SIZES).float().log1p(), atol=0.05, rtol=0)
    torch.testing.assert_close(fraction[:3], torch.tensor(SIZES) / 19, atol=0.02, rtol=0)
    torch.testing.assert_close(ratio[:3].exp(), torch.tensor([1, 6.5 / 9.5, 4.5 / 8.0]), atol=0.05, rtol=0)
    torch.testing.assert_close(unexplained[:4], torch.tensor([1.0, 10 / 19, 4 / 19, 0.0]), atol=0.02, rtol=0)
    torch.testing.assert_close(beyond, 3.0 - torch.arange(5), atol=0.1, rtol=0)
    torch.testing.assert_close(size, torch.full((5,), 19.0).log())


def test_repeated_seeds_and_duplicates_are_not_distinct() -> None:
    code = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 0.0], [0.0, 2.0]]])
    chosen = torch.tensor([[0, 1, 1, 2, 3]])
    assert is_distinct(squared_distances(code), chosen).tolist() == [[True, True, False, False, True]]


def test_seed_features_have_finite_gradients_for_duplicates() -> None:
    code = torch.zeros(1, 6, 2)
    code[0, 4:] = 3
    code.requires_grad_()
    distance = squared_distances(code)
    seed_features(distance, choose_seeds(distance, 4)).sum().backward()
    assert code.grad is not None
    assert code.grad.isfinite().all()


def test_count_probabilities_are_a_product_of_conditional_probabilities() -> None:
    scores = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = count_log_probabilities(scores).exp()
    torch.testing.assert_close(p.sum(-1), torch.ones(4, dtype=torch.float64))
    h = scores.sigmoid()
    torch.testing.assert_close(p[:, 0], 1 - h[:, 1])
    torch.testing.assert_close(p[:, 2], h[:, 1] * h[:, 2] * (1 - h[:, 3]))
    torch.testing.assert_close(p[:, 4], h[:, 1] * h[:, 2] * h[:, 3] * h[:, 4])
    assert count_log_probabilities(scores[:, :1]).tolist() == [[0.0]] * 4


def test_soft_k_means_matches_a_manual_computation() -> None:
    code, _ = codes(gap=1.0)
    chosen = choose_seeds(squared_distances(code), 3)
    beta = torch.tensor(1.7)
    ours = soft_k_means(code, chosen, 2, beta)
    for k in range(1, 4):
        centers = code[0, chosen[0, :k]]
        for step in range(3):
            p = (-beta * torch.cdist(code[0], centers) ** 2).softmax(-1)
            if step < 2:
                centers = (p.T @ code[0]) / p.sum(0).unsqueeze(-1)
        torch.testing.assert_close(ours[0, :, k - 1, :k], p, atol=1e-5, rtol=1e-4)
        assert (ours[0, :, k - 1, k:] == 0).all()


def test_soft_k_means_finds_separated_clusters() -> None:
    code, labels = codes()
    assignment = soft_k_means(code, choose_seeds(squared_distances(code), 4), 2, torch.tensor(1.0))
    assert torch.equal(assignment[0, :, 2].argmax(-1), labels)
    assert assignment[0, :, 2].amax(-1).min() > 0.999
