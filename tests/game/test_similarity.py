"""Similarities against NumPy and SciPy, and their invariances."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from entourage.game import clamp, cosine, gaussian, pearson, self_tuning, shift
from entourage.game.similarity import SCALE_NEIGHBOR, center_rows, squared_distances

Similarity = Callable[[Tensor], Tensor]


def unsquared_self_tuning(x: Tensor) -> Tensor:
    return self_tuning(x, squared=False)


ALL = [cosine, pearson, gaussian, self_tuning, unsquared_self_tuning]
KERNELS = [gaussian, self_tuning, unsquared_self_tuning]


@pytest.fixture
def embeddings() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(15, 4)))


@pytest.fixture
def rotation() -> Tensor:
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0])


def scales(distance: np.ndarray) -> np.ndarray:
    """Return the distance to the seventh other point."""
    return np.sort(distance, axis=1)[:, SCALE_NEIGHBOR]


def test_pearson_equals_numpy_corrcoef(embeddings: Tensor) -> None:
    np.testing.assert_allclose(pearson(embeddings).numpy(), np.corrcoef(embeddings.numpy()), atol=1e-12)


def test_cosine_equals_scipy(embeddings: Tensor) -> None:
    expected = 1 - cdist(embeddings.numpy(), embeddings.numpy(), "cosine")
    np.testing.assert_allclose(cosine(embeddings).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("bandwidth", [0.3, 2.0])
def test_gaussian_equals_the_formula(embeddings: Tensor, bandwidth: float) -> None:
    expected = np.exp(-(cdist(embeddings, embeddings) ** 2) / (2 * bandwidth**2))
    np.testing.assert_allclose(gaussian(embeddings, bandwidth).numpy(), expected, rtol=1e-10)


def test_default_bandwidth_is_the_root_mean_square_scale(embeddings: Tensor) -> None:
    bandwidth = float(np.sqrt((scales(cdist(embeddings, embeddings)) ** 2).mean()))
    torch.testing.assert_close(gaussian(embeddings), gaussian(embeddings, bandwidth))


@pytest.mark.parametrize("bandwidth", [0.9, None])
def test_gaussian_with_y_equals_columns_of_the_full_matrix(embeddings: Tensor, bandwidth: float | None) -> None:
    # The default bandwidth depends on x only.
    torch.testing.assert_close(
        gaussian(embeddings, bandwidth, embeddings[3:5]), gaussian(embeddings, bandwidth)[:, 3:5]
    )


@pytest.mark.parametrize("squared", [True, False])
def test_self_tuning_equals_the_formula(embeddings: Tensor, squared: bool) -> None:
    distance = cdist(embeddings, embeddings)
    sigma = scales(distance)
    expected = np.exp(-(distance**2 if squared else distance) / np.outer(sigma, sigma))
    np.testing.assert_allclose(self_tuning(embeddings, squared=squared).numpy(), expected, rtol=1e-10)


def test_pearson_is_invariant_to_shift_and_scale_of_rows(embeddings: Tensor) -> None:
    rows = torch.arange(1.0, 16.0, dtype=torch.float64)[:, None]
    torch.testing.assert_close(pearson(rows * embeddings - 7 * rows), pearson(embeddings))


def test_cosine_is_invariant_to_scale_but_not_to_shift_of_rows(embeddings: Tensor) -> None:
    rows = torch.arange(1.0, 16.0, dtype=torch.float64)[:, None]
    torch.testing.assert_close(cosine(rows * embeddings), cosine(embeddings))
    assert not torch.allclose(cosine(embeddings + 7), cosine(embeddings))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("kernel", [gaussian, self_tuning])
def test_kernels_are_invariant_to_scale_rotation_and_translation(
    embeddings: Tensor, rotation: Tensor, kernel: Similarity, factor: float
) -> None:
    torch.testing.assert_close(kernel(factor * embeddings @ rotation + 11), kernel(embeddings))


@pytest.mark.parametrize("similarity", ALL)
def test_similarities_are_symmetric_and_bounded(embeddings: Tensor, similarity: Similarity) -> None:
    w = similarity(embeddings)
    torch.testing.assert_close(w, w.T)
    assert w.abs().max() <= 1 + 1e-12
    torch.testing.assert_close(w.diagonal(), torch.ones(15, dtype=torch.float64))


@pytest.mark.parametrize("similarity", ALL)
def test_permuted_rows_give_permuted_similarities(embeddings: Tensor, similarity: Similarity) -> None:
    order = torch.randperm(15, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(similarity(embeddings[order]), similarity(embeddings)[order][:, order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.3, -3.3e-20])
@pytest.mark.parametrize("d", [7, 1000, 20_000])
def test_constant_rows_have_zero_correlation(d: int, constant: float, dtype: torch.dtype) -> None:
    # The mean of seven times 0.1 is not exactly 0.1: the correlation of the rounding errors would be 1.
    varied = torch.randn(3, d, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x = torch.cat([torch.full((2, d), constant, dtype=dtype), varied])
    w = pearson(x)
    assert w.isfinite().all()
    assert (w[:2] == 0).all()
    assert (center_rows(x)[:2] == 0).all()
    assert (w[2:, 2:].diagonal() > 0.99).all()


@pytest.mark.parametrize("similarity", [pearson, cosine])
@pytest.mark.parametrize("size", [1e-31, 3e-20, 1e37])
def test_similarity_and_gradient_of_very_small_and_large_rows(similarity: Similarity, size: float) -> None:
    x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    scaled = (size * x / x.abs().max()).requires_grad_()
    w = similarity(scaled)
    torch.testing.assert_close(w, similarity(x))
    assert torch.autograd.grad(w.sum(), scaled)[0].isfinite().all()


def test_zero_rows_have_zero_cosine(embeddings: Tensor) -> None:
    embeddings[3] = 0
    w = cosine(embeddings)
    assert w.isfinite().all()
    assert (w[3] == 0).all()


@pytest.mark.parametrize("similarity", ALL)
def test_duplicates_have_similarity_1_and_finite_gradients(embeddings: Tensor, similarity: Similarity) -> None:
    embeddings[1:10] = embeddings[0]  # more than SCALE_NEIGHBOR: their local scale is 0
    embeddings.requires_grad_()
    w = similarity(embeddings)
    assert w.isfinite().all()
    torch.testing.assert_close(w[:10, :10].detach(), torch.ones(10, 10, dtype=torch.float64))
    slope = torch.randn(15, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((w * slope).sum(), embeddings)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("similarity", [self_tuning, unsquared_self_tuning, cosine, pearson])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_duplicates(similarity: Similarity, dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, 2.0, 4.0]] * 9, dtype=dtype, requires_grad=True)
    w = similarity(x)
    torch.testing.assert_close(w.detach(), torch.ones(9, 9, dtype=dtype))
    (gradient,) = torch.autograd.grad(w.sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("similarity", ALL)
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_points(similarity: Similarity, n: int) -> None:
    w = similarity(torch.tensor([[1.0, 2.0, 4.0], [0.0, 3.0, 1.0]])[:n])
    assert w.shape == (n, n)
    assert w.isfinite().all()
    torch.testing.assert_close(w.diagonal(), torch.ones(n))


def test_local_scale_of_two_points_is_their_distance() -> None:
    w = self_tuning(torch.tensor([[0.0], [5.0]]))
    assert w[0, 1].item() == pytest.approx(np.exp(-1))


@pytest.mark.parametrize("similarity", [cosine, pearson, lambda x: gaussian(x, 0.9), self_tuning])
def test_gradients_match_finite_differences(similarity: Similarity) -> None:
    x = torch.from_numpy(np.random.default_rng(3).normal(size=(6, 3)))
    slope = torch.from_numpy(np.random.default_rng(4).normal(size=(6, 6)))
    if similarity is self_tuning:  # scales are constants for the gradient: use the same ones on both sides
        sigma = squared_distances(x).kthvalue(6, dim=1).values.sqrt()

        def similarity(x: Tensor) -> Tensor:
            return torch.exp(-squared_distances(x) / sigma.outer(sigma))

        x_grad = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((self_tuning(x_grad) * slope).sum(), x_grad)
        (expected,) = torch.autograd.grad((similarity(x_grad) * slope).sum(), x_grad)
        torch.testing.assert_close(gradient, expected)
    # Without the diagonal: the distance of a point to itself is not differentiable at 0.
    mask = 1 - torch.eye(6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: (similarity(x) * slope * mask).sum(), x.requires_grad_())


def test_distances_far_from_the_origin_are_accurate() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double()
    far = (x * 1000 + 1e6).float()
    expected = cdist(far.double(), far.double()) ** 2
    np.testing.assert_allclose(squared_distances(far).numpy(), expected, rtol=1e-5)
    assert (squared_distances(far).diagonal() == 0).all()


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_non_positive_bandwidth_raises(embeddings: Tensor, bandwidth: float) -> None:
    with pytest.raises(ValueError, match=r"bandwidth is .*; expected a number above 0"):
        gaussian(embeddings, bandwidth)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_gaussian_of_equal_points_is_1_with_zero_gradient(n: int) -> None:
    x = torch.full((n, 2), 3.0, requires_grad=True)
    w = gaussian(x)
    assert torch.equal(w, torch.ones(n, n))
    w.sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


def test_default_bandwidth_of_groups_of_equal_points() -> None:
    # Eight of each: the seventh neighbour is at distance 0, and half of all pairs at distance 5.
    w = gaussian(torch.tensor([[0.0, 0.0], [3.0, 4.0]]).repeat(8, 1))
    expected = torch.tensor([[1.0, math.exp(-1)], [math.exp(-1), 1.0]]).repeat(8, 8)
    torch.testing.assert_close(w, expected)


def test_clamp_and_shift_of_negative_similarities() -> None:
    w = torch.tensor([[0.5, -0.25], [-1.0, 1.0]])
    assert clamp(w).tolist() == [[0.5, 0.0], [0.0, 1.0]]
    assert shift(w).tolist() == [[1.5, 0.75], [0.0, 2.0]]


@pytest.mark.parametrize("make_non_negative", [clamp, shift])
def test_clamp_and_shift_keep_non_negative_similarities(make_non_negative: Similarity) -> None:
    w = torch.tensor([[0.5, 0.25], [0.25, 1.0]])
    assert torch.equal(make_non_negative(w), w)


def test_shift_is_a_constant_for_the_gradient() -> None:
    w = torch.tensor([[0.5, -0.25]], requires_grad=True)
    (gradient,) = torch.autograd.grad(shift(w).sum(), w)
    assert gradient.tolist() == [[1.0, 1.0]]
